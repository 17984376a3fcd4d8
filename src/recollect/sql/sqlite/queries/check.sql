-- name: sessions_total
-- Count the sessions of an owner, also in the trash.
SELECT count(*) AS sessions FROM sessions WHERE owner = :owner

-- name: sessions_all
-- Return a page of session keys of an owner, also in the trash.
SELECT key FROM sessions WHERE key > :after AND +owner = :owner ORDER BY key LIMIT :limit

-- name: session_state
-- Return the derived columns of a session and their actual values, for a check.
SELECT s.branch, s.open_turns, b.session AS head_session, b.number AS head_number,
    (SELECT count(*) FROM branches AS o WHERE o.session = s.key AND o.open_turn IS NOT NULL) AS open_branches,
    (SELECT t.folded FROM titles AS t WHERE t.session = s.key) AS sort_title,
    (SELECT json_group_array(l.label) FROM (
        SELECT r.label FROM session_labels AS r WHERE r.session = s.key ORDER BY r.label
    ) AS l) AS label_rows
FROM sessions AS s LEFT JOIN branches AS b ON b.key = s.head
WHERE s.key = :session

-- name: session_recount
-- Correct the counts of a session.
UPDATE sessions
SET revision = revision + 1, updated_at = max(updated_at, :now), message_count = :message_count,
    token_count = :token_count, input_tokens = :input_tokens, output_tokens = :output_tokens
WHERE key = :session

-- name: session_set_last
-- Correct the last position of a session.
UPDATE sessions SET last = :last WHERE key = :session AND head = :branch

-- name: branch_set_last
-- Correct the last position of a branch.
UPDATE branches SET last = :last WHERE key = :branch

-- name: session_set_open_turns
-- Correct the number of open turns of a session.
UPDATE sessions SET open_turns = :count WHERE key = :session

-- name: session_set_branch
-- Correct the branch number of a session.
UPDATE sessions SET branch = :number WHERE key = :session

-- name: messages_extent
-- Return the number of messages of a branch, and the first and last position.
SELECT count(*) AS messages, min(key & 4294967295) AS first, max(key & 4294967295) AS last FROM messages
WHERE key > (:branch << 32) AND key <= (:branch << 32) | 4294967295

-- name: messages_next
-- Return the next branch key that has messages, and whether that branch is missing.
SELECT m.key >> 32 AS branch, b.key IS NULL AS is_missing
FROM (SELECT min(n.key) AS key FROM messages AS n WHERE n.key > (:branch << 32) | 4294967295) AS m
LEFT JOIN branches AS b ON b.key = m.key >> 32
WHERE m.key IS NOT NULL

-- name: turns_unclaimed
-- Return open turns that do not hold their branch.
SELECT t.key & 4294967295 AS position FROM turns AS t
WHERE t.key > (:branch << 32) AND t.key <= (:branch << 32) | 4294967295 AND t.status = 'open'
    AND t.key & 4294967295 IS NOT :open_turn

-- name: tool_calls_inconsistent
-- Return tool calls of a branch whose messages are missing or do not match.
SELECT t.call_id, m.key IS NULL AS lacks_call, t.result IS NOT NULL AND r.key IS NULL AS lacks_result
FROM tool_calls AS t LEFT JOIN messages AS m ON m.key = t.message LEFT JOIN messages AS r ON r.key = t.result
WHERE t.message > (:branch << 32) AND t.message <= (:branch << 32) | 4294967295 AND (
    m.key IS NULL OR (t.result IS NOT NULL AND r.key IS NULL)
    OR (t.result IS NULL AND t.status IN ('success', 'error'))
    OR (t.result IS NOT NULL AND t.status IN ('pending', 'running'))
    OR CASE WHEN json_valid(m.parts) THEN json_extract(m.parts, '$[' || t.part || '].kind') IS NOT 'tool_call' END
    OR CASE WHEN json_valid(r.parts) THEN json_extract(r.parts, '$[' || t.result_part || '].kind') IS NOT 'tool_result' END
)

-- name: appends_dangling
-- Return idempotency keys whose messages do not exist.
SELECT a.key FROM appends AS a JOIN sessions AS s ON s.key = a.session LEFT JOIN branches AS b ON b.key = a.branch
WHERE a.session = :session AND (
    b.key IS NULL OR a.position + a.count - 1 > CASE WHEN s.head = b.key THEN s.last ELSE b.last END
)

-- name: blobs_refs
-- Return the stored reference count of each blob, and whether its size is correct.
SELECT hash, refs, octet_length(data) = size AS size_matches FROM blobs WHERE owner = :owner

-- shared: reference_counts
-- The number of references of all messages, and of their earlier versions, to each blob.
SELECT j.value AS hash, count(*) AS refs FROM (
    SELECT key, blobs FROM messages WHERE blobs IS NOT NULL
    UNION ALL
    SELECT message, blobs FROM message_versions WHERE blobs IS NOT NULL
) AS m CROSS JOIN branches AS b ON b.key = m.key >> 32
CROSS JOIN trees AS t ON t.key = b.tree CROSS JOIN json_each(m.blobs) AS j
WHERE json_valid(m.blobs) AND t.owner = :owner
GROUP BY j.value

-- name: blobs_reference_counts
-- Count the references of all messages to each blob.
{reference_counts}

-- name: blobs_page
-- Return a page of an owner's blobs with their payloads, for a check.
SELECT hash, data FROM blobs WHERE owner = :owner AND hash > :after ORDER BY hash LIMIT :limit

-- name: blobs_recount
-- Correct the reference counts of blobs.
WITH counts AS MATERIALIZED ({reference_counts})
UPDATE blobs SET refs = coalesce((SELECT counts.refs FROM counts WHERE counts.hash = blobs.hash), 0)
WHERE owner = :owner AND refs <> coalesce((SELECT counts.refs FROM counts WHERE counts.hash = blobs.hash), 0)

-- name: trees_miscounted
-- Return trees whose branch counter is lower than a branch number.
SELECT t.key AS tree FROM trees AS t
WHERE t.owner = :owner AND t.branches < (SELECT max(b.number) FROM branches AS b WHERE b.tree = t.key)
