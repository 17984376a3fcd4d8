-- Putting a payload's references right counts them again, with the payload locked: what others wrote since counts too.

-- shared: this
tree = :session::bigint >> 20 AND number = (:session::bigint & 1048575)::int

-- shared: branch
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int

-- shared: delegates
(SELECT count(*) FROM recollect.sessions AS d
    WHERE d.parent = (SELECT (s.tree << 20) | s.number) AND d.owner = s.owner AND d.relation = 'delegate'
        AND d.deleted_at IS NULL)

-- shared: parent_id
(SELECT p.id FROM recollect.sessions AS p
    WHERE p.tree = (SELECT s.parent >> 20) AND p.number = (SELECT (s.parent & 1048575)::int) AND p.owner = s.owner)

-- name: sessions_total
SELECT count(*) FROM recollect.sessions WHERE owner = :owner

-- name: sessions_all
SELECT (tree << 20) | number FROM recollect.sessions
WHERE (tree, number) > (:after::bigint >> 20, (:after::bigint & 1048575)::int) AND owner = :owner
ORDER BY tree, number LIMIT :limit

-- name: session_state
SELECT s.last, s.branch, s.open_turns, (b.tree << 20) | b.session, b.number, b.fork_at,
    (SELECT count(*) FROM recollect.branches AS o
        WHERE o.tree = s.tree AND o.session = s.number AND o.open_turn IS NOT NULL),
    s.folded,
    s.delegates <> {delegates} OR s.parent_id IS DISTINCT FROM {parent_id},
    NOT s.waiting AND EXISTS (
        SELECT FROM recollect.branches AS o
        WHERE o.tree = s.tree AND o.session = s.number
            AND CASE WHEN s.branch = o.number THEN s.last ELSE o.last END > o.indexed_to
    )
FROM recollect.sessions AS s LEFT JOIN recollect.branches AS b ON b.tree = s.tree AND b.number = s.branch
WHERE s.tree = :session::bigint >> 20 AND s.number = (:session::bigint & 1048575)::int

-- name: session_recount
UPDATE recollect.sessions
SET revision = revision + 1, updated_at = greatest(updated_at, :now), message_count = :message_count,
    token_count = :token_count, input_tokens = :input_tokens, output_tokens = :output_tokens
WHERE {this}

-- name: session_set_last
UPDATE recollect.sessions SET last = :last, waiting = true WHERE {this} AND branch = (:branch::bigint & 1048575)::int

-- name: branch_set_last
UPDATE recollect.branches SET last = :last
WHERE tree = :branch::bigint >> 20 AND number = (:branch::bigint & 1048575)::int

-- name: session_set_open_turns
UPDATE recollect.sessions SET open_turns = :count WHERE {this}

-- name: session_set_kin
UPDATE recollect.sessions AS s SET delegates = {delegates}, parent_id = {parent_id} WHERE {this}

-- name: session_set_waiting
UPDATE recollect.sessions SET waiting = true WHERE {this}

-- name: session_set_branch
UPDATE recollect.sessions SET branch = :number WHERE {this}

-- name: messages_extent
SELECT count(*), min(position), max(position) FROM recollect.messages WHERE {branch}

-- name: messages_next
SELECT (m.tree << 20) | m.branch, b.tree IS NULL
FROM (
    SELECT n.tree, n.branch FROM recollect.messages AS n
    WHERE n.owner = (SELECT recollect.owner()) AND (n.tree, n.branch) > (:branch::bigint >> 20, (:branch::bigint & 1048575)::int)
    ORDER BY n.tree, n.branch, n.position LIMIT 1
) AS m
LEFT JOIN recollect.branches AS b ON b.tree = m.tree AND b.number = m.branch

-- name: turns_unclaimed
SELECT position FROM recollect.turns
WHERE {branch} AND status = 'open' AND position IS DISTINCT FROM :open_turn::int

-- name: tool_calls_astray
SELECT t.call_id, m.tree IS NULL, t.result IS NOT NULL AND r.tree IS NULL
FROM recollect.tool_calls AS t
LEFT JOIN recollect.messages AS m
    ON m.tree = t.tree AND m.branch = t.message_branch AND m.position = t.message_position
LEFT JOIN recollect.messages AS r ON r.tree = t.tree AND r.branch = t.branch AND r.position = t.result
WHERE t.tree = :branch::bigint >> 20 AND t.message_branch = (:branch::bigint & 1048575)::int AND (
    m.tree IS NULL OR (t.result IS NOT NULL AND r.tree IS NULL)
    OR (t.result IS NULL AND t.status IN ('success', 'error'))
    OR (t.result IS NOT NULL AND t.status IN ('pending', 'running'))
    OR NOT recollect.part_is(m.parts, t.part, 'tool_call')
    OR (r.tree IS NOT NULL AND NOT recollect.part_is(r.parts, t.result_part, 'tool_result'))
)

-- name: appends_astray
SELECT a.key
FROM recollect.appends AS a
JOIN recollect.sessions AS s ON s.tree = a.tree AND s.number = a.session
LEFT JOIN recollect.branches AS b ON b.tree = a.tree AND b.number = a.branch
WHERE a.tree = :session::bigint >> 20 AND a.session = (:session::bigint & 1048575)::int AND (
    b.tree IS NULL OR a.position + a.count - 1 > CASE WHEN s.branch = b.number THEN s.last ELSE b.last END
)

-- name: blobs_refs
SELECT hash, refs, octet_length(data) = size FROM recollect.blobs WHERE owner = :owner

-- name: blobs_named
SELECT j.hash, count(*)
FROM recollect.messages AS m CROSS JOIN LATERAL json_array_elements_text(m.blobs::json) AS j (hash)
WHERE m.blobs IS NOT NULL AND m.owner = :owner
GROUP BY j.hash

-- name: blobs_some
SELECT hash, data FROM recollect.blobs WHERE owner = :owner AND hash > :after ORDER BY hash LIMIT :limit

-- lock: blob_set_refs
SELECT hash FROM recollect.blobs WHERE owner = :owner AND hash = :hash FOR UPDATE

-- name: blob_set_refs
UPDATE recollect.blobs SET refs = (
    SELECT count(*)
    FROM recollect.messages AS m CROSS JOIN LATERAL json_array_elements_text(m.blobs::json) AS j (hash)
    WHERE m.blobs IS NOT NULL AND m.owner = :owner AND j.hash = :hash
)
WHERE owner = :owner AND hash = :hash

-- name: trees_short
SELECT t.tree FROM recollect.trees AS t
WHERE t.owner = :owner AND t.branches < (SELECT max(b.number) FROM recollect.branches AS b WHERE b.tree = t.tree)
