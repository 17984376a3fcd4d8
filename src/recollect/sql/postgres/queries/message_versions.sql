-- shared: version_columns
-- All columns of a version.
position, version, replaced_at, role, state, tokens, input_tokens, output_tokens, completed_at, format, model, error, metadata,
native, blobs, parts

-- shared: is_message
-- Condition: the version is of the message of the branch with the key :branch.
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int AND position = :position

-- shared: on_branch
-- Condition: the row belongs to the branch with the key :branch.
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int

-- name: message_version_add
-- Store the content of a message as its newest earlier version.
INSERT INTO recollect.message_versions (
    tree, branch, position, version, replaced_at, role, state, tokens, input_tokens, output_tokens, completed_at, format,
    model, error, metadata, native, blobs, parts
)
SELECT m.tree, m.branch, m.position, 1 + coalesce((
        SELECT max(v.version) FROM recollect.message_versions AS v
        WHERE v.tree = m.tree AND v.branch = m.branch AND v.position = m.position
    ), 0), :now::bigint, role, state, tokens, input_tokens, output_tokens, completed_at, format, model, error, metadata,
    native, blobs, parts
FROM recollect.messages AS m WHERE {is_message}

-- name: message_version_insert
-- Insert a version with all its columns, if it does not exist.
INSERT INTO recollect.message_versions (
    tree, branch, position, version, replaced_at, role, state, tokens, input_tokens, output_tokens, completed_at, format,
    model, error, metadata, native, blobs, parts
) VALUES (?1::bigint >> 20, (?1::bigint & 1048575)::int, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
    ?16, ?17)
ON CONFLICT (tree, branch, position, version) DO NOTHING

-- name: message_versions_of_span
-- Return the earlier versions of the messages of a span, the oldest first.
SELECT {version_columns} FROM recollect.message_versions
WHERE {on_branch} AND position > :low::bigint AND position <= :high::bigint
ORDER BY position, version

-- name: message_version_rewrite
-- Replace the parts of a version after a tool output was dropped.
UPDATE recollect.message_versions SET parts = :parts, tokens = :tokens, blobs = :blobs
WHERE {is_message} AND version = :version

-- name: message_versions_delete
-- Delete the earlier versions of a message.
DELETE FROM recollect.message_versions WHERE {is_message}

-- name: message_versions_erase
-- Delete the versions of the messages of a branch after a position.
DELETE FROM recollect.message_versions WHERE {on_branch} AND position > :low

-- name: message_versions_stray
-- Return some versions whose message does not exist.
SELECT (v.tree << 20) | v.branch AS branch, v.position
FROM recollect.message_versions AS v
LEFT JOIN recollect.messages AS m ON m.tree = v.tree AND m.branch = v.branch AND m.position = v.position
WHERE m.tree IS NULL LIMIT :limit
