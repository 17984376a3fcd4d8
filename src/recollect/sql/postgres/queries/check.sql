-- blobs_recount counts the references again while the blobs are locked, so that concurrent writes are included.

-- shared: is_session
-- Condition: the session has the key :session.
tree = :session::bigint >> 20 AND number = (:session::bigint & 1048575)::int

-- shared: on_branch
-- Condition: the row belongs to the branch with the key :branch.
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int

-- shared: delegate_count
-- The number of delegates that are not in the trash, as sessions.delegates should state it.
(SELECT count(*) FROM recollect.sessions AS d
    WHERE d.parent = (SELECT (s.tree << 20) | s.number) AND d.owner = s.owner AND d.relation = 'delegate'
        AND d.deleted_at IS NULL)

-- shared: parent_id
-- The id of the parent, as sessions.parent_id should state it.
(SELECT p.id FROM recollect.sessions AS p
    WHERE p.tree = (SELECT s.parent >> 20) AND p.number = (SELECT (s.parent & 1048575)::int) AND p.owner = s.owner)

-- name: sessions_total
-- Count the sessions of an owner, also in the trash.
SELECT count(*) AS sessions FROM recollect.sessions WHERE owner = :owner

-- name: sessions_all
-- Return a page of session keys of an owner, also in the trash.
SELECT (tree << 20) | number AS key FROM recollect.sessions
WHERE (tree, number) > (:after::bigint >> 20, (:after::bigint & 1048575)::int) AND owner = :owner
ORDER BY tree, number LIMIT :limit

-- name: session_state
-- Return the derived columns of a session and their actual values, for a check.
SELECT s.branch, s.open_turns, (b.tree << 20) | b.session AS head_session, b.number AS head_number,
    (SELECT count(*) FROM recollect.branches AS o
        WHERE o.tree = s.tree AND o.session = s.number AND o.open_turn IS NOT NULL) AS open_branches,
    s.folded AS sort_title, (
        SELECT coalesce(json_agg(l.label ORDER BY l.label), '[]')::text FROM recollect.session_labels AS l
        WHERE l.tree = s.tree AND l.session = s.number
    ) AS label_rows
FROM recollect.sessions AS s LEFT JOIN recollect.branches AS b ON b.tree = s.tree AND b.number = s.branch
WHERE s.tree = :session::bigint >> 20 AND s.number = (:session::bigint & 1048575)::int

-- name: session_derived_state
-- Return whether the stored parent id or number of delegates is wrong, and whether search would skip messages.
SELECT s.delegates <> {delegate_count} OR s.parent_id IS DISTINCT FROM {parent_id} AS relatives_differ,
    NOT s.waiting AND EXISTS (
        SELECT FROM recollect.branches AS o
        WHERE o.tree = s.tree AND o.session = s.number
            AND CASE WHEN s.branch = o.number THEN s.last ELSE o.last END > o.indexed_to
    ) AS is_skipped
FROM recollect.sessions AS s
WHERE s.tree = :session::bigint >> 20 AND s.number = (:session::bigint & 1048575)::int

-- name: session_recount
-- Correct the counts of a session.
UPDATE recollect.sessions
SET revision = revision + 1, updated_at = greatest(updated_at, :now), message_count = :message_count,
    token_count = :token_count, input_tokens = :input_tokens, output_tokens = :output_tokens
WHERE {is_session}

-- name: session_set_last
-- Correct the last position of a session.
UPDATE recollect.sessions SET last = :last, waiting = true WHERE {is_session} AND branch = (:branch::bigint & 1048575)::int

-- name: branch_set_last
-- Correct the last position of a branch.
UPDATE recollect.branches SET last = :last
WHERE tree = :branch::bigint >> 20 AND number = (:branch::bigint & 1048575)::int

-- name: session_set_open_turns
-- Correct the number of open turns of a session.
UPDATE recollect.sessions SET open_turns = :count WHERE {is_session}

-- name: session_set_relatives
-- Correct the stored parent id and number of delegates.
UPDATE recollect.sessions AS s SET delegates = {delegate_count}, parent_id = {parent_id} WHERE {is_session}

-- name: session_set_waiting
-- Mark a session as having messages to index.
UPDATE recollect.sessions SET waiting = true WHERE {is_session}

-- name: session_set_branch
-- Correct the branch number of a session.
UPDATE recollect.sessions SET branch = :number WHERE {is_session}

-- name: messages_extent
-- Return the number of messages of a branch, and the first and last position.
SELECT count(*) AS messages, min(position) AS first, max(position) AS last FROM recollect.messages WHERE {on_branch}

-- name: messages_next
-- Return the next branch key that has messages, and whether that branch is missing.
SELECT (m.tree << 20) | m.branch AS branch, b.tree IS NULL AS is_missing
FROM (
    SELECT n.tree, n.branch FROM recollect.messages AS n
    WHERE n.owner = (SELECT recollect.owner()) AND (n.tree, n.branch) > (:branch::bigint >> 20, (:branch::bigint & 1048575)::int)
    ORDER BY n.tree, n.branch, n.position LIMIT 1
) AS m
LEFT JOIN recollect.branches AS b ON b.tree = m.tree AND b.number = m.branch

-- name: turns_unclaimed
-- Return open turns that do not hold their branch.
SELECT position FROM recollect.turns
WHERE {on_branch} AND status = 'open' AND position IS DISTINCT FROM :open_turn::int

-- name: tool_calls_inconsistent
-- Return tool calls of a branch whose messages are missing or do not match.
SELECT t.call_id, m.tree IS NULL AS lacks_call, t.result IS NOT NULL AND r.tree IS NULL AS lacks_result
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

-- name: appends_dangling
-- Return idempotency keys whose messages do not exist.
SELECT a.key
FROM recollect.appends AS a
JOIN recollect.sessions AS s ON s.tree = a.tree AND s.number = a.session
LEFT JOIN recollect.branches AS b ON b.tree = a.tree AND b.number = a.branch
WHERE a.tree = :session::bigint >> 20 AND a.session = (:session::bigint & 1048575)::int AND (
    b.tree IS NULL OR a.position + a.count - 1 > CASE WHEN s.branch = b.number THEN s.last ELSE b.last END
)

-- name: blobs_refs
-- Return the stored reference count of each blob, and whether its size is correct.
SELECT hash, refs, octet_length(data) = size AS size_matches FROM recollect.blobs WHERE owner = :owner

-- shared: reference_counts
-- The number of references of all messages, and of their earlier versions, to each blob.
SELECT j.hash, count(*) AS refs
FROM (
    SELECT blobs FROM recollect.messages WHERE blobs IS NOT NULL AND owner = :owner
    UNION ALL
    SELECT blobs FROM recollect.message_versions WHERE blobs IS NOT NULL AND owner = :owner
) AS m CROSS JOIN LATERAL json_array_elements_text(m.blobs::json) AS j (hash)
GROUP BY j.hash

-- name: blobs_reference_counts
-- Count the references of all messages to each blob.
{reference_counts}

-- name: blobs_page
-- Return a page of an owner's blobs with their payloads, for a check.
SELECT hash, data FROM recollect.blobs WHERE owner = :owner AND hash > :after ORDER BY hash LIMIT :limit

-- name: blobs_recount_lock
-- Lock the rows that blobs_recount reads.
SELECT hash FROM recollect.blobs WHERE owner = :owner ORDER BY hash FOR UPDATE

-- name: blobs_recount
-- Correct the reference counts of blobs.
UPDATE recollect.blobs AS b SET refs = coalesce(c.refs, 0)
FROM recollect.blobs AS o LEFT JOIN ({reference_counts}) AS c ON c.hash = o.hash
WHERE b.owner = :owner AND o.owner = b.owner AND o.hash = b.hash AND b.refs <> coalesce(c.refs, 0)

-- name: trees_miscounted
-- Return trees whose branch counter is lower than a branch number.
SELECT t.tree FROM recollect.trees AS t
WHERE t.owner = :owner AND t.branches < (SELECT max(b.number) FROM recollect.branches AS b WHERE b.tree = t.tree)
