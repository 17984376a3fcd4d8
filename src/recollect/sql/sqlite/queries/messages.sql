-- shared: message
CAST(parts AS BLOB), key & 4294967295, role, created_at, turn, tokens, format, model, input_tokens, output_tokens, native,
CASE WHEN coalesce(state, completed_at, deleted_at, error, metadata, blobs) IS NOT NULL
THEN json_array(state, completed_at, deleted_at, error, metadata, blobs) END

-- shared: step
(m.role = 'tool' OR (m.role = 'assistant' AND EXISTS (
    SELECT 1 FROM tool_calls AS c WHERE c.message = m.key AND c.result IS NOT m.key
)))

-- name: message_insert
INSERT INTO messages (
    key, turn, role, state, tokens, input_tokens, output_tokens, created_at, completed_at, format, model, error,
    metadata, native, blobs, parts
) VALUES ((? << 32) | ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: message_get
SELECT {message}
FROM messages WHERE key = (:branch << 32) | :position

-- name: message_for_update
SELECT {message}
FROM messages WHERE key = (:branch << 32) | :position

-- name: messages_forward
SELECT {message}
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND (deleted_at IS NULL OR :deleted)
ORDER BY key LIMIT :limit

-- name: messages_backward
SELECT {message}
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND (deleted_at IS NULL OR :deleted)
ORDER BY key DESC LIMIT :limit

-- name: messages_last
SELECT {message}, key >> 32, here.number, here.last, here.fork_at
FROM (
    SELECT (s.head << 32) | b.fork_at AS low, (s.head << 32) | s.last AS high, b.number, s.last, b.fork_at
    FROM sessions AS s JOIN branches AS b ON b.key = s.head
    WHERE s.owner = :owner AND s.id = :id AND s.deleted_at IS NULL
) AS here
CROSS JOIN messages
WHERE key > here.low AND key <= here.high AND (deleted_at IS NULL OR :deleted)
ORDER BY key DESC LIMIT :limit

-- name: messages_tell
SELECT CAST(parts AS BLOB), key & 4294967295, role, format, native, coalesce(state, blobs)
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND deleted_at IS NULL
ORDER BY key LIMIT :limit

-- name: messages_pinned
SELECT {message}
FROM messages
WHERE key IN (
    SELECT p.message FROM pins AS p
    WHERE p.message > (:branch << 32) | :low AND p.message <= (:branch << 32) | :high
) AND deleted_at IS NULL
ORDER BY key

-- name: messages_asked
SELECT {message}
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND role = 'user' AND deleted_at IS NULL
ORDER BY key DESC LIMIT 1

-- name: message_annotate
UPDATE messages SET metadata = :metadata WHERE key = (:branch << 32) | :position

-- name: messages_count
SELECT count(*), coalesce(sum(tokens), 0), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0),
    max(created_at)
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND deleted_at IS NULL

-- name: messages_shown
WITH RECURSIVE asked (place, id, deleted_at, after, until) AS (
    SELECT j.key, j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3 FROM json_each(:stretches) AS j
), heads (place, after, until, branch, last) AS (
    SELECT a.place, a.after, a.until, s.head, s.last
    FROM asked AS a CROSS JOIN sessions AS s ON s.owner = :owner AND s.id = a.id AND s.deleted_at IS NULL
    WHERE a.deleted_at IS NULL
    UNION ALL
    SELECT a.place, a.after, a.until, s.head, s.last
    FROM asked AS a CROSS JOIN sessions AS s ON s.owner = :owner AND s.id = a.id AND s.deleted_at = a.deleted_at
    WHERE a.deleted_at IS NOT NULL
), path (place, after, until, key, parent, low, high) AS (
    SELECT h.place, h.after, h.until, b.key, b.parent, b.fork_at, h.last
    FROM heads AS h CROSS JOIN branches AS b ON b.key = h.branch
    UNION ALL
    SELECT p.place, p.after, p.until, b.key, b.parent, b.fork_at, p.low
    FROM path AS p CROSS JOIN branches AS b ON b.key = p.parent
)
SELECT p.place, (
    SELECT count(*) FROM messages AS m
    WHERE m.key > (p.key << 32) | max(p.low, p.after) AND m.key <= (p.key << 32) | min(p.high, p.until)
        AND m.deleted_at IS NULL AND NOT {step}
)
FROM path AS p

-- name: messages_shown_by_branch
SELECT b.number, (
    SELECT count(*) FROM messages AS m
    WHERE m.key > (b.key << 32) | b.fork_at AND m.key <= (b.key << 32) | 4294967295 AND m.deleted_at IS NULL AND NOT {step}
)
FROM branches AS b WHERE b.session = :session

-- name: messages_blobs
SELECT blobs FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND blobs IS NOT NULL

-- name: message_mark
UPDATE messages SET deleted_at = :deleted_at WHERE key = (:branch << 32) | :position

-- name: message_write
UPDATE messages
SET parts = :parts, state = :state, tokens = :tokens, input_tokens = :input_tokens, output_tokens = :output_tokens,
    completed_at = :completed_at, format = :format, model = :model, error = :error, metadata = :metadata,
    native = :native, blobs = :blobs
WHERE key = (:branch << 32) | :position

-- name: messages_interrupt
UPDATE messages SET state = 'interrupted', completed_at = :now
WHERE key >= (:branch << 32) | :position AND key <= (:branch << 32) | 4294967295
    AND turn = :position AND state IN ('pending', 'streaming')

-- name: messages_erase
DELETE FROM messages WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | 4294967295

-- name: append_get
SELECT digest, branch, position, count FROM appends WHERE session = :session AND key = :key

-- name: append_insert
INSERT INTO appends (session, key, digest, branch, position, count, created_at)
VALUES (:session, :key, :digest, :branch, :position, :count, :now)

-- name: blob_keep
UPDATE blobs SET refs = refs + 1 WHERE owner = :owner AND hash = :hash RETURNING refs

-- name: blob_insert
INSERT INTO blobs (owner, hash, size, refs, data, created_at) VALUES (:owner, :hash, :size, 1, :data, :now)

-- name: blob_get
SELECT data FROM blobs WHERE owner = :owner AND hash = :hash

-- name: blob_drop
UPDATE blobs SET refs = refs - 1 WHERE owner = ? AND hash = ?

-- name: blob_sweep
DELETE FROM blobs WHERE owner = ? AND hash = ? AND refs <= 0
