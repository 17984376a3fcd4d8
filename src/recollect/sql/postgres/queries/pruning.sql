-- shared: session_messages
-- Branches with their messages.
FROM recollect.branches AS b JOIN recollect.messages AS m ON m.tree = b.tree AND m.branch = b.number

-- shared: of_session
-- Condition: the branch belongs to the session with the key :session.
b.tree = :session::bigint >> 20 AND b.session = (:session::bigint & 1048575)::int

-- shared: row_size
-- The bytes of a message.
octet_length(m.parts) + coalesce(octet_length(m.native), 0) + coalesce(octet_length(m.metadata), 0)
+ coalesce(octet_length(m.error), 0)

-- shared: version_size
-- The bytes of an earlier version of a message.
octet_length(v.parts) + coalesce(octet_length(v.native), 0) + coalesce(octet_length(v.metadata), 0)
+ coalesce(octet_length(v.error), 0)

-- shared: trimmable_range
-- Condition: the message is in a span and may be deleted to trim a session.
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int
AND position > :low::bigint AND position <= :high::bigint AND deleted_at IS NULL AND role <> 'system'

-- shared: after_key
-- Condition: the session comes after the last one of the previous page.
(tree, number) > (:after::bigint >> 20, (:after::bigint & 1048575)::int) AND owner = :owner

-- shared: prune_columns
-- The columns by which pruning decides: times, pin and open turns.
(tree << 20) | number AS key, id, title, greatest(active_at, coalesce(last_message_at, 0)) AS last_active_at,
active_at AS listed_at, pinned_at, open_turns,
greatest(active_at, coalesce(last_message_at, 0), updated_at) AS touched_at

-- shared: is_tool_step
-- Condition: a message is a tool step: a tool result, or an assistant message with a call that it does not answer
-- itself. Transcripts for people omit tool steps.
(m.role = 'tool' OR (m.role = 'assistant' AND EXISTS (
    SELECT 1 FROM recollect.tool_calls AS c
    WHERE c.tree = m.tree AND c.message_branch = m.branch AND c.message_position = m.position
        AND (c.result IS NULL OR c.branch <> m.branch OR c.result <> m.position)
    OFFSET 0
)))

-- name: sessions_prunable
-- Return a page of sessions that pruning looks at, most recently active first.
SELECT {prune_columns} FROM recollect.sessions
WHERE owner = :owner AND deleted_at IS NULL
    AND (active_at, tree, number) < (:at::bigint, :key::bigint >> 20, (:key::bigint & 1048575)::int)
    AND (relation IS DISTINCT FROM 'delegate' OR (
        SELECT p.deleted_at IS NULL FROM recollect.sessions AS p
        WHERE p.tree = (SELECT sessions.parent >> 20) AND p.number = (SELECT (sessions.parent & 1048575)::int)
    ) IS NOT TRUE)
ORDER BY active_at DESC, tree DESC, number DESC LIMIT :limit

-- name: sessions_delegated
-- Return the delegates of a session.
SELECT (tree << 20) | number AS key FROM recollect.sessions
WHERE parent = :session::bigint AND relation = 'delegate' AND deleted_at IS NULL
ORDER BY tree, number

-- name: sessions_trashed
-- Return a page of sessions that were moved to the trash at or before a time.
SELECT {prune_columns} FROM recollect.sessions
WHERE {after_key} AND deleted_at IS NOT NULL AND deleted_at <= :until::bigint
ORDER BY tree, number LIMIT :limit

-- name: sessions_over_limit
-- Return a page of unpinned sessions with more messages than a limit.
SELECT (tree << 20) | number AS key FROM recollect.sessions
WHERE {after_key} AND deleted_at IS NULL AND pinned_at IS NULL AND message_count > :max_messages::bigint
ORDER BY tree, number LIMIT :limit

-- name: sessions_unpinned
-- Return a page of sessions in whose tree no session is pinned.
SELECT (tree << 20) | number AS key FROM recollect.sessions
WHERE {after_key} AND deleted_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM recollect.sessions AS o
    WHERE o.tree = sessions.tree AND o.pinned_at IS NOT NULL AND o.deleted_at IS NULL
)
ORDER BY tree, number LIMIT :limit

-- name: messages_total_size
-- Return the number of messages, bytes and tool steps of a session.
SELECT count(*) AS messages, coalesce(sum({row_size}), 0) + coalesce((
    SELECT sum({version_size})
    FROM recollect.branches AS b JOIN recollect.message_versions AS v ON v.tree = b.tree AND v.branch = b.number
    WHERE {of_session}
), 0) AS bytes, count(*) FILTER (WHERE {is_tool_step}) AS tool_steps
{session_messages}
WHERE {of_session}

-- name: blobs_total_size
-- Add up the bytes of the blobs to which a session refers in messages and their earlier versions.
SELECT coalesce(sum(x.size), 0) + coalesce((
    SELECT sum(x.size)
    FROM recollect.branches AS b JOIN recollect.message_versions AS v ON v.tree = b.tree AND v.branch = b.number
    CROSS JOIN LATERAL json_array_elements_text(v.blobs::json) AS j (hash)
    JOIN recollect.blobs AS x ON x.owner = :owner AND x.hash = j.hash
    WHERE {of_session} AND v.blobs IS NOT NULL
), 0) AS bytes
{session_messages}
CROSS JOIN LATERAL json_array_elements_text(m.blobs::json) AS j (hash)
JOIN recollect.blobs AS x ON x.owner = :owner AND x.hash = j.hash
WHERE {of_session} AND m.blobs IS NOT NULL

-- name: messages_outline
-- Return the position, role and turn of messages of a span, except system messages.
SELECT position, role, turn FROM recollect.messages WHERE {trimmable_range} ORDER BY position LIMIT :limit

-- name: messages_mark_deleted
-- Mark the messages of a span as deleted, except system messages; return their tokens.
UPDATE recollect.messages SET deleted_at = :now WHERE {trimmable_range}
RETURNING tokens, coalesce(input_tokens, 0) AS input_tokens, coalesce(output_tokens, 0) AS output_tokens

-- name: messages_large
-- Return a page of messages with large tool outputs or with blobs, in their content or in an earlier version.
SELECT (b.tree << 20) | b.number AS branch, b.number, m.position
{session_messages}
WHERE {of_session} AND (b.number, m.position) > ((:branch::bigint & 1048575)::int, :position::int) AND (
    ((octet_length(m.parts) > :min_bytes::bigint OR m.blobs IS NOT NULL) AND strpos(m.parts, '"kind":"tool_result"') > 0)
    OR EXISTS (
        SELECT FROM recollect.message_versions AS v
        WHERE v.tree = m.tree AND v.branch = m.branch AND v.position = m.position
            AND (octet_length(v.parts) > :min_bytes::bigint OR v.blobs IS NOT NULL)
            AND strpos(v.parts, '"kind":"tool_result"') > 0
        OFFSET 0
    )
)
ORDER BY b.number, m.position LIMIT :limit

-- name: message_replace_parts
-- Replace the parts of a message after a tool output was dropped.
UPDATE recollect.messages SET parts = :parts, tokens = :tokens, blobs = :blobs, edited_at = :edited_at
WHERE tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int AND position = :position
