-- shared: version_columns
-- All columns of a version.
message & 4294967295 AS position, version, replaced_at, role, state, tokens, input_tokens, output_tokens, completed_at, format,
model, error, metadata, native, blobs, parts

-- shared: in_span
-- Condition: the message is in a span.
message > (:branch << 32) | :low AND message <= (:branch << 32) | :high

-- name: message_version_add
-- Store the content of a message as its newest earlier version.
INSERT INTO message_versions (
    message, version, replaced_at, role, state, tokens, input_tokens, output_tokens, completed_at, format, model, error,
    metadata, native, blobs, parts
)
SELECT key, 1 + coalesce((SELECT max(v.version) FROM message_versions AS v WHERE v.message = m.key), 0), :now, role, state,
    tokens, input_tokens, output_tokens, completed_at, format, model, error, metadata, native, blobs, parts
FROM messages AS m WHERE key = (:branch << 32) | :position

-- name: message_version_insert
-- Insert a version with all its columns, if it does not exist.
INSERT INTO message_versions (
    message, version, replaced_at, role, state, tokens, input_tokens, output_tokens, completed_at, format, model, error,
    metadata, native, blobs, parts
) VALUES ((? << 32) | ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (message, version) DO NOTHING

-- name: message_versions_of_span
-- Return the earlier versions of the messages of a span, the oldest first.
SELECT {version_columns} FROM message_versions WHERE {in_span} ORDER BY message, version

-- name: message_version_rewrite
-- Replace the parts of a version after a tool output was dropped.
UPDATE message_versions SET parts = :parts, tokens = :tokens, blobs = :blobs
WHERE message = (:branch << 32) | :position AND version = :version

-- name: message_versions_delete
-- Delete the earlier versions of a message.
DELETE FROM message_versions WHERE message = (:branch << 32) | :position

-- name: message_versions_erase
-- Delete the versions of the messages of a branch after a position.
DELETE FROM message_versions WHERE message > (:branch << 32) | :low AND message <= (:branch << 32) | 4294967295

-- name: message_versions_stray
-- Return some versions whose message does not exist.
SELECT v.message >> 32 AS branch, v.message & 4294967295 AS position
FROM message_versions AS v LEFT JOIN messages AS m ON m.key = v.message
WHERE m.key IS NULL LIMIT :limit
