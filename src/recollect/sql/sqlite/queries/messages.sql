-- shared: message_columns
-- The columns of a message. The rare ones are one JSON array, or NULL; parts stay bytes for the decoder.
CAST(parts AS BLOB) AS parts, key & 4294967295 AS position, role, created_at, turn, tokens, format, model, input_tokens, output_tokens, native,
CASE WHEN coalesce(state, completed_at, deleted_at, error, metadata, blobs, client_key, edited_at) IS NOT NULL
THEN json_array(state, completed_at, deleted_at, error, metadata, blobs, client_key, edited_at) END AS rare

-- shared: path_cte
-- The branch segments of the path that ends with a branch.
path (key, number, parent, low, high) AS (
    SELECT b.key, b.number, b.parent, b.fork_at, CASE WHEN s.head = b.key THEN s.last ELSE b.last END
    FROM branches AS b LEFT JOIN sessions AS s ON s.key = b.session
    WHERE b.key = :branch
    UNION ALL
    SELECT b.key, b.number, b.parent, b.fork_at, p.low
    FROM path AS p JOIN branches AS b ON b.key = p.parent
)

-- shared: nul_restored
-- An id of a JSON parameter, in which model/json.py has escaped NUL: the JSON functions would end the text there.
CASE WHEN instr(id, char(16)) THEN replace(replace(id, char(16) || '0', char(0)), char(16) || 'p', char(16)) ELSE id END

-- shared: is_tool_step
-- Condition: a message is a tool step: a tool result, or an assistant message with a call that it does not answer
-- itself. Transcripts for people omit tool steps.
(m.role = 'tool' OR (m.role = 'assistant' AND EXISTS (
    SELECT 1 FROM tool_calls AS c WHERE c.message = m.key AND c.result IS NOT m.key
)))

-- name: message_insert
-- Insert a message.
INSERT INTO messages (
    key, turn, role, state, tokens, input_tokens, output_tokens, created_at, completed_at, format, model, error,
    metadata, native, blobs, parts
) VALUES ((? << 32) | ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: message_insert_full
-- Insert a message with all its columns.
INSERT INTO messages (
    key, turn, role, state, tokens, input_tokens, output_tokens, created_at, completed_at, format, model, error,
    metadata, native, blobs, parts, client_key, edited_at, deleted_at
) VALUES ((? << 32) | ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: message_get
-- Return a message by its branch and position.
SELECT {message_columns}
FROM messages WHERE key = (:branch << 32) | :position

-- name: message_for_update
-- Return a message and lock it until the transaction ends.
SELECT {message_columns}
FROM messages WHERE key = (:branch << 32) | :position

-- name: messages_forward
-- Return messages of a span, oldest first.
SELECT {message_columns}
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND (deleted_at IS NULL OR :deleted)
ORDER BY key LIMIT :limit

-- name: messages_backward
-- Return messages of a span, newest first.
SELECT {message_columns}
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND (deleted_at IS NULL OR :deleted)
ORDER BY key DESC LIMIT :limit

-- name: messages_forward_by_time
-- Return the messages of a span that were created between two times, oldest first.
SELECT {message_columns}
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND (deleted_at IS NULL OR :deleted)
    AND created_at > :since AND created_at < :until
ORDER BY key LIMIT :limit

-- name: messages_backward_by_time
-- Return the messages of a span that were created between two times, newest first.
SELECT {message_columns}
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND (deleted_at IS NULL OR :deleted)
    AND created_at > :since AND created_at < :until
ORDER BY key DESC LIMIT :limit

-- name: messages_last
-- Return the last messages of a session's head branch, newest first.
SELECT {message_columns}, key >> 32 AS head, head_branch.number, head_branch.last, head_branch.fork_at
FROM (
    SELECT (s.head << 32) | b.fork_at AS low, (s.head << 32) | s.last AS high, b.number, s.last, b.fork_at
    FROM sessions AS s JOIN branches AS b ON b.key = s.head
    WHERE s.owner = :owner AND s.id = :id AND s.deleted_at IS NULL
) AS head_branch
CROSS JOIN messages
WHERE key > head_branch.low AND key <= head_branch.high AND (deleted_at IS NULL OR :deleted)
ORDER BY key DESC LIMIT :limit

-- name: messages_last_tuples
-- Return the columns that a history needs of the last messages of a session's head branch, newest first.
SELECT CAST(parts AS BLOB) AS parts, key & 4294967295 AS position, role, format, native, coalesce(state, blobs) AS rare,
    key >> 32 AS head, head_branch.fork_at
FROM (
    SELECT (s.head << 32) | b.fork_at AS low, (s.head << 32) | s.last AS high, b.fork_at
    FROM sessions AS s JOIN branches AS b ON b.key = s.head
    WHERE s.owner = :owner AND s.id = :id AND s.deleted_at IS NULL
) AS head_branch
CROSS JOIN messages
WHERE key > head_branch.low AND key <= head_branch.high AND deleted_at IS NULL
ORDER BY key DESC LIMIT :limit

-- name: messages_tuples
-- Return the columns of messages that a history needs, oldest first.
SELECT CAST(parts AS BLOB) AS parts, key & 4294967295 AS position, role, format, native, coalesce(state, blobs) AS rare
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND deleted_at IS NULL
ORDER BY key LIMIT :limit

-- name: messages_pinned
-- Return the pinned and system messages of a span.
SELECT {message_columns}
FROM messages
WHERE key IN (
    SELECT p.message FROM pins AS p
    WHERE p.message > (:branch << 32) | :low AND p.message <= (:branch << 32) | :high
) AND deleted_at IS NULL
ORDER BY key

-- name: messages_last_user
-- Return the last user message of a span.
SELECT {message_columns}
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND role = 'user' AND deleted_at IS NULL
ORDER BY key DESC LIMIT 1

-- name: messages_keyed
-- Return the messages of a path that have one of these keys, a JSON array of their UTF-8 bytes in hexadecimal with spaces.
WITH RECURSIVE {path_cte}
SELECT p.key AS branch, p.number, m.key & 4294967295 AS position, m.client_key, m.turn, m.edited_at, m.deleted_at, m.role,
    m.format, m.native, m.parts
FROM json_each(:keys) AS k CROSS JOIN path AS p CROSS JOIN messages AS m INDEXED BY messages_client_key
    ON m.client_key = CAST(unhex(k.value, ' ') AS TEXT)
        AND m.key > (p.key << 32) | p.low AND m.key <= (p.key << 32) | p.high
WHERE m.deleted_at IS NULL OR :deleted

-- name: message_keys_in_use
-- Return whether any message has one of these keys, a JSON array as in messages_keyed.
SELECT EXISTS (
    SELECT 1 FROM json_each(:keys) AS k CROSS JOIN messages AS m INDEXED BY messages_client_key
        ON m.client_key = CAST(unhex(k.value, ' ') AS TEXT)
) AS is_in_use

-- name: messages_with_key
-- Return the messages of a tree with a key.
SELECT b.key AS branch, m.key & 4294967295 AS position, m.deleted_at IS NOT NULL AS is_deleted
FROM branches AS b CROSS JOIN messages AS m INDEXED BY messages_client_key
    ON m.client_key = :key AND m.key > (b.key << 32) AND m.key <= (b.key << 32) | 4294967295
WHERE b.tree = :tree

-- name: messages_with_keys
-- Return the messages of a tree that have one of these keys, a JSON array as in messages_keyed.
SELECT m.client_key, b.key AS branch, m.key & 4294967295 AS position
FROM json_each(:keys) AS k CROSS JOIN branches AS b CROSS JOIN messages AS m INDEXED BY messages_client_key
    ON m.client_key = CAST(unhex(k.value, ' ') AS TEXT)
        AND m.key > (b.key << 32) AND m.key <= (b.key << 32) | 4294967295
WHERE b.tree = :tree

-- name: messages_of_key
-- Return a page of an owner's messages with a key, without the trees whose sessions are all in the trash.
SELECT b.tree, b.key AS branch, b.number, m.key & 4294967295 AS position, m.deleted_at IS NOT NULL AS is_deleted
FROM messages AS m INDEXED BY messages_client_key CROSS JOIN branches AS b ON b.key = m.key >> 32
CROSS JOIN trees AS t ON t.key = b.tree
WHERE m.client_key = :key AND m.key > (:branch << 32) | :position AND t.owner = :owner
    AND EXISTS (SELECT 1 FROM sessions AS s WHERE s.tree = b.tree AND s.deleted_at IS NULL)
ORDER BY m.key LIMIT :limit

-- name: messages_sharing_key
-- Return the messages of a branch whose key another message of the path has too. Deleted messages do not count.
WITH RECURSIVE {path_cte}
SELECT m.key & 4294967295 AS position, m.client_key FROM messages AS m
WHERE m.key > (:branch << 32) AND m.key <= (:branch << 32) | 4294967295 AND m.client_key IS NOT NULL AND m.deleted_at IS NULL
    AND EXISTS (
        SELECT 1 FROM path AS p CROSS JOIN messages AS o INDEXED BY messages_client_key
            ON o.client_key = m.client_key AND o.key > (p.key << 32) | p.low AND o.key <= (p.key << 32) | p.high
        WHERE o.key <> m.key AND o.deleted_at IS NULL
    )

-- name: messages_selected
-- Return the tokens of messages of a branch, at the positions of a JSON array, and whether they are deleted.
SELECT m.key & 4294967295 AS position, m.deleted_at IS NOT NULL AS is_deleted, m.tokens, m.input_tokens, m.output_tokens
FROM json_each(:positions) AS j CROSS JOIN messages AS m ON m.key = (:branch << 32) | j.value

-- name: message_set_key
-- Set the key of a message.
UPDATE messages SET client_key = :key WHERE key = (:branch << 32) | :position

-- name: message_set_metadata
-- Replace the metadata of a message.
UPDATE messages SET metadata = :metadata WHERE key = (:branch << 32) | :position

-- name: message_set_usage
-- Replace the usage of a message.
UPDATE messages SET input_tokens = :input_tokens, output_tokens = :output_tokens WHERE key = (:branch << 32) | :position

-- name: messages_count
-- Count the messages and tokens of a span.
SELECT count(*) AS messages, coalesce(sum(tokens), 0) AS tokens, coalesce(sum(input_tokens), 0) AS input_tokens,
    coalesce(sum(output_tokens), 0) AS output_tokens, max(created_at) AS last_message_at
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND deleted_at IS NULL

-- name: messages_shown
-- Count the messages of path ranges that are not tool steps.
WITH RECURSIVE requested_ranges (range_number, id, deleted_at, after, until) AS (
    SELECT j.key, {nul_restored}, j.value ->> 1, j.value ->> 2, j.value ->> 3
    FROM (SELECT key, value, value ->> 0 AS id FROM json_each(:ranges)) AS j
), heads (range_number, after, until, branch, last) AS (
    SELECT a.range_number, a.after, a.until, s.head, s.last
    FROM requested_ranges AS a CROSS JOIN sessions AS s ON s.owner = :owner AND s.id = a.id AND s.deleted_at IS NULL
    WHERE a.deleted_at IS NULL
    UNION ALL
    SELECT a.range_number, a.after, a.until, s.head, s.last
    FROM requested_ranges AS a CROSS JOIN sessions AS s ON s.owner = :owner AND s.id = a.id AND s.deleted_at = a.deleted_at
    WHERE a.deleted_at IS NOT NULL
), path (range_number, after, until, key, parent, low, high) AS (
    SELECT h.range_number, h.after, h.until, b.key, b.parent, b.fork_at, h.last
    FROM heads AS h CROSS JOIN branches AS b ON b.key = h.branch
    UNION ALL
    SELECT p.range_number, p.after, p.until, b.key, b.parent, b.fork_at, p.low
    FROM path AS p CROSS JOIN branches AS b ON b.key = p.parent
)
SELECT p.range_number, (
    SELECT count(*) FROM messages AS m
    WHERE m.key > (p.key << 32) | max(p.low, p.after) AND m.key <= (p.key << 32) | min(p.high, p.until)
        AND m.deleted_at IS NULL AND NOT {is_tool_step}
) AS messages
FROM path AS p

-- name: messages_shown_by_branch
-- Count the messages of each branch of a session that are not tool steps.
SELECT b.number, (
    SELECT count(*) FROM messages AS m
    WHERE m.key > (b.key << 32) | b.fork_at AND m.key <= (b.key << 32) | 4294967295 AND m.deleted_at IS NULL AND NOT {is_tool_step}
) AS messages
FROM branches AS b WHERE b.session = :session

-- name: messages_blobs
-- Return the blob lists of the messages of a span and of their earlier versions.
SELECT blobs FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND blobs IS NOT NULL
UNION ALL
SELECT blobs FROM message_versions
WHERE message > (:branch << 32) | :low AND message <= (:branch << 32) | :high AND blobs IS NOT NULL

-- name: message_mark_deleted
-- Mark a message as deleted, or remove the mark.
UPDATE messages SET deleted_at = :deleted_at WHERE key = (:branch << 32) | :position

-- name: message_write
-- Replace the content of a message that is not finished.
UPDATE messages
SET parts = :parts, state = :state, tokens = :tokens, input_tokens = :input_tokens, output_tokens = :output_tokens,
    completed_at = :completed_at, format = :format, model = :model, error = :error, metadata = :metadata,
    native = :native, blobs = :blobs
WHERE key = (:branch << 32) | :position

-- name: message_replace
-- Replace the content of a finished message.
UPDATE messages
SET role = :role, parts = :parts, state = :state, tokens = :tokens, input_tokens = :input_tokens,
    output_tokens = :output_tokens, completed_at = coalesce(completed_at, :completed_at), format = :format, model = :model,
    error = :error, metadata = :metadata, native = :native, blobs = :blobs, edited_at = :edited_at
WHERE key = (:branch << 32) | :position

-- name: messages_interrupt
-- Mark unfinished messages of a turn as interrupted.
UPDATE messages SET state = 'interrupted', completed_at = :now
WHERE key >= (:branch << 32) | :position AND key <= (:branch << 32) | 4294967295
    AND turn = :position AND state IN ('pending', 'streaming')

-- name: messages_erase
-- Delete the messages of a branch after a position.
DELETE FROM messages WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | 4294967295

-- name: append_get
-- Return the digest and the messages of an append by its idempotency key.
SELECT digest, branch, position, count AS messages FROM appends WHERE session = :session AND key = :key

-- name: append_insert
-- Store the idempotency key of an append.
INSERT INTO appends (session, key, digest, branch, position, count, created_at)
VALUES (:session, :key, :digest, :branch, :position, :count, :now)

-- name: blob_reference
-- Add a reference to a blob; no row if the blob does not exist.
UPDATE blobs SET refs = refs + 1 WHERE owner = :owner AND hash = :hash RETURNING refs

-- name: blob_insert
-- Insert a blob with one reference.
INSERT INTO blobs (owner, hash, size, refs, data, created_at) VALUES (:owner, :hash, :size, 1, :data, :now)

-- name: blob_get
-- Return the payload of a blob.
SELECT data FROM blobs WHERE owner = :owner AND hash = :hash

-- name: blob_release
-- Remove a reference to a blob.
UPDATE blobs SET refs = refs - 1 WHERE owner = ? AND hash = ?

-- name: blob_delete_unused
-- Delete a blob that no message refers to.
DELETE FROM blobs WHERE owner = ? AND hash = ? AND refs <= 0
