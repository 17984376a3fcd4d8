-- name: sessions_total
SELECT count(*) FROM sessions WHERE owner = :owner

-- name: sessions_all
SELECT key FROM sessions WHERE key > :after AND +owner = :owner ORDER BY key LIMIT :limit

-- name: session_state
SELECT s.last, s.branch, s.open_turns, b.session, b.number, b.fork_at,
    (SELECT count(*) FROM branches AS o WHERE o.session = s.key AND o.open_turn IS NOT NULL),
    (SELECT t.folded FROM titles AS t WHERE t.session = s.key),
    false, false
FROM sessions AS s LEFT JOIN branches AS b ON b.key = s.head
WHERE s.key = :session

-- name: session_recount
UPDATE sessions
SET revision = revision + 1, updated_at = max(updated_at, :now), message_count = :message_count,
    token_count = :token_count, input_tokens = :input_tokens, output_tokens = :output_tokens
WHERE key = :session

-- name: session_set_last
UPDATE sessions SET last = :last WHERE key = :session AND head = :branch

-- name: branch_set_last
UPDATE branches SET last = :last WHERE key = :branch

-- name: session_set_open_turns
UPDATE sessions SET open_turns = :count WHERE key = :session

-- name: session_set_kin
SELECT 1 WHERE false

-- name: session_set_waiting
SELECT 1 WHERE false

-- name: session_set_branch
UPDATE sessions SET branch = :number WHERE key = :session

-- name: messages_extent
SELECT count(*), min(key & 4294967295), max(key & 4294967295) FROM messages
WHERE key > (:branch << 32) AND key <= (:branch << 32) | 4294967295

-- name: messages_next
SELECT m.key >> 32, b.key IS NULL
FROM (SELECT min(n.key) AS key FROM messages AS n WHERE n.key > (:branch << 32) | 4294967295) AS m
LEFT JOIN branches AS b ON b.key = m.key >> 32
WHERE m.key IS NOT NULL

-- name: turns_unclaimed
SELECT t.key & 4294967295 FROM turns AS t
WHERE t.key > (:branch << 32) AND t.key <= (:branch << 32) | 4294967295 AND t.status = 'open'
    AND t.key & 4294967295 IS NOT :open_turn

-- name: tool_calls_astray
SELECT t.call_id, m.key IS NULL, t.result IS NOT NULL AND r.key IS NULL
FROM tool_calls AS t LEFT JOIN messages AS m ON m.key = t.message LEFT JOIN messages AS r ON r.key = t.result
WHERE t.message > (:branch << 32) AND t.message <= (:branch << 32) | 4294967295 AND (
    m.key IS NULL OR (t.result IS NOT NULL AND r.key IS NULL)
    OR (t.result IS NULL AND t.status IN ('success', 'error'))
    OR (t.result IS NOT NULL AND t.status IN ('pending', 'running'))
    OR CASE WHEN json_valid(m.parts) THEN json_extract(m.parts, '$[' || t.part || '].kind') IS NOT 'tool_call' END
    OR CASE WHEN json_valid(r.parts) THEN json_extract(r.parts, '$[' || t.result_part || '].kind') IS NOT 'tool_result' END
)

-- name: appends_astray
SELECT a.key FROM appends AS a JOIN sessions AS s ON s.key = a.session LEFT JOIN branches AS b ON b.key = a.branch
WHERE a.session = :session AND (
    b.key IS NULL OR a.position + a.count - 1 > CASE WHEN s.head = b.key THEN s.last ELSE b.last END
)

-- name: blobs_refs
SELECT hash, refs, octet_length(data) = size FROM blobs WHERE owner = :owner

-- name: blobs_named
SELECT j.value, count(*) FROM messages AS m CROSS JOIN branches AS b ON b.key = m.key >> 32
CROSS JOIN trees AS t ON t.key = b.tree CROSS JOIN json_each(m.blobs) AS j
WHERE m.blobs IS NOT NULL AND json_valid(m.blobs) AND t.owner = :owner
GROUP BY j.value

-- name: blobs_some
SELECT hash, data FROM blobs WHERE owner = :owner AND hash > :after ORDER BY hash LIMIT :limit

-- name: blob_set_refs
UPDATE blobs SET refs = :refs WHERE owner = :owner AND hash = :hash

-- name: trees_short
SELECT t.key FROM trees AS t
WHERE t.owner = :owner AND t.branches < (SELECT max(b.number) FROM branches AS b WHERE b.tree = t.key)
