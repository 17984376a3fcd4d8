-- shared: own
FROM recollect.branches AS b JOIN recollect.messages AS m ON m.tree = b.tree AND m.branch = b.number

-- shared: of
b.tree = :session::bigint >> 20 AND b.session = (:session::bigint & 1048575)::int

-- shared: stretch
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int
AND position > :low::bigint AND position <= :high::bigint AND deleted_at IS NULL AND role <> 'system'

-- shared: beyond
(tree, number) > (:after::bigint >> 20, (:after::bigint & 1048575)::int) AND owner = :owner

-- shared: resting
(tree << 20) | number, id, title, greatest(active_at, coalesce(last_message_at, 0)), active_at, pinned_at, open_turns,
greatest(active_at, coalesce(last_message_at, 0), updated_at)

-- shared: step
(m.role = 'tool' OR (m.role = 'assistant' AND EXISTS (
    SELECT 1 FROM recollect.tool_calls AS c
    WHERE c.tree = m.tree AND c.message_branch = m.branch AND c.message_position = m.position
        AND (c.result IS NULL OR c.branch <> m.branch OR c.result <> m.position)
    OFFSET 0
)))

-- name: sessions_resting
SELECT {resting} FROM recollect.sessions
WHERE owner = :owner AND deleted_at IS NULL
    AND (active_at, tree, number) < (:at::bigint, :key::bigint >> 20, (:key::bigint & 1048575)::int)
    AND (relation IS DISTINCT FROM 'delegate' OR (
        SELECT p.deleted_at IS NULL FROM recollect.sessions AS p
        WHERE p.tree = (SELECT sessions.parent >> 20) AND p.number = (SELECT (sessions.parent & 1048575)::int)
    ) IS NOT TRUE)
ORDER BY active_at DESC, tree DESC, number DESC LIMIT :limit

-- name: sessions_delegated
SELECT (tree << 20) | number FROM recollect.sessions
WHERE parent = :session::bigint AND relation = 'delegate' AND deleted_at IS NULL
ORDER BY tree, number

-- name: sessions_trashed
SELECT {resting} FROM recollect.sessions
WHERE {beyond} AND deleted_at IS NOT NULL AND deleted_at <= :until::bigint
ORDER BY tree, number LIMIT :limit

-- name: sessions_long
SELECT (tree << 20) | number FROM recollect.sessions
WHERE {beyond} AND deleted_at IS NULL AND pinned_at IS NULL AND message_count > :most::bigint
ORDER BY tree, number LIMIT :limit

-- name: sessions_unpinned
SELECT (tree << 20) | number FROM recollect.sessions
WHERE {beyond} AND deleted_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM recollect.sessions AS o
    WHERE o.tree = sessions.tree AND o.pinned_at IS NOT NULL AND o.deleted_at IS NULL
)
ORDER BY tree, number LIMIT :limit

-- name: messages_weight
SELECT count(*), coalesce(sum(
    octet_length(m.parts) + coalesce(octet_length(m.native), 0) + coalesce(octet_length(m.metadata), 0)
    + coalesce(octet_length(m.error), 0)
), 0), count(*) FILTER (WHERE {step})
{own}
WHERE {of}

-- name: blobs_weight
SELECT coalesce(sum(x.size), 0)
{own}
CROSS JOIN LATERAL json_array_elements_text(m.blobs::json) AS j (hash)
JOIN recollect.blobs AS x ON x.owner = :owner AND x.hash = j.hash
WHERE {of} AND m.blobs IS NOT NULL

-- name: messages_outline
SELECT position, role, turn FROM recollect.messages WHERE {stretch} ORDER BY position LIMIT :limit

-- name: messages_mark
UPDATE recollect.messages SET deleted_at = :now WHERE {stretch}
RETURNING tokens, coalesce(input_tokens, 0), coalesce(output_tokens, 0)

-- name: messages_large
SELECT (b.tree << 20) | b.number, b.number, m.position
{own}
WHERE {of} AND (b.number, m.position) > ((:branch::bigint & 1048575)::int, :position::int)
    AND (octet_length(m.parts) > :over::bigint OR m.blobs IS NOT NULL)
    AND strpos(m.parts, '"kind":"tool_result"') > 0
ORDER BY b.number, m.position LIMIT :limit

-- name: message_thin
UPDATE recollect.messages SET parts = :parts, tokens = :tokens, blobs = :blobs
WHERE tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int AND position = :position
