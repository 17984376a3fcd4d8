-- shared: message_row
-- All columns of a message.
key & 4294967295 AS position, turn, role, state, tokens, input_tokens, output_tokens, created_at, completed_at, format, model, error,
metadata, native, blobs, parts, client_key, edited_at, deleted_at

-- name: sessions_created_after
-- Return a page of session ids, oldest first, for an export.
SELECT created_at, key, id, tree FROM sessions INDEXED BY sessions_created
WHERE owner = :owner AND deleted_at IS NULL AND (created_at, key) > (:at, :key)
ORDER BY created_at, key LIMIT :limit

-- name: branches_outline
-- Return the branches of a tree with their last positions.
SELECT b.key, b.number, b.session, b.parent, b.fork_at, CASE WHEN s.head = b.key THEN s.last ELSE b.last END AS last,
    b.created_at, b.last AS column_last, b.open_turn
FROM branches AS b LEFT JOIN sessions AS s ON s.key = b.session
WHERE b.tree = :tree
ORDER BY b.number

-- name: messages_sizes
-- Return the position and size in bytes of messages of a span, with their earlier versions.
SELECT key & 4294967295 AS position, octet_length(parts) + coalesce(
    (SELECT sum(octet_length(v.parts)) FROM message_versions AS v WHERE v.message = messages.key), 0
) AS size
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND (deleted_at IS NULL OR :deleted)
ORDER BY key LIMIT :limit

-- name: messages_rows
-- Return the rows of the messages of a span.
SELECT {message_row} FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND (deleted_at IS NULL OR :deleted)
ORDER BY key

-- name: message_row
-- Return the row of a message, for an export.
SELECT {message_row} FROM messages WHERE key = (:branch << 32) | :position

-- name: tool_calls_of_span
-- Return the tool calls of the messages of a span.
SELECT message & 4294967295 AS position, part, branch, call_id, tool, status, result & 4294967295 AS result, result_part,
    created_at, started_at, completed_at, latency_ms, error_code, error_message
FROM tool_calls
WHERE message > (:branch << 32) | :low AND message <= (:branch << 32) | :high
ORDER BY message, part, branch

-- name: compactions_outline
-- Return the compactions of a branch up to a position, in the order in which they were made.
SELECT from_position, to_position, round, tokens_before, tokens_after, summary, created_at, undone_at
FROM compactions WHERE branch = :branch AND to_position <= :high
ORDER BY key

-- name: snapshots_outline
-- Return the snapshots of a session, in the order in which they were made.
SELECT kind, content, message >> 32 AS branch, message & 4294967295 AS position, tokens, created_at, updated_at
FROM snapshots WHERE session = :session
ORDER BY key

-- name: blob_size
-- Return the size of a blob in bytes.
SELECT size FROM blobs WHERE owner = :owner AND hash = :hash

-- name: tree_raise_branches
-- Raise the highest branch number of a tree.
UPDATE trees SET branches = max(branches, :number) WHERE key = :tree

-- name: branch_copy
-- Insert a branch with all its columns, for a copy.
INSERT INTO branches (tree, number, session, parent, fork_at, last, open_turn, created_at)
VALUES (:tree, :number, :session, :parent, :fork_at, :last, :open_turn, :created_at)
RETURNING key

-- name: session_renew
-- Replace the times of a session with those of an import.
UPDATE sessions
SET relation = coalesce(relation, :relation), created_at = :created_at, active_at = max(active_at, :active_at),
    last_message_at = :last_message_at
WHERE key = :session

-- name: session_raise_revision
-- Raise the revision and the times of a session after an import.
UPDATE sessions
SET revision = CASE WHEN revision > :revision THEN revision + 1 ELSE :revision END, updated_at = max(updated_at, :updated_at),
    last_message_at = coalesce(max(coalesce(last_message_at, 0), :last_message_at), last_message_at)
WHERE key = :session

-- name: session_import_head
-- Set the head branch and the counts of an imported session.
UPDATE sessions
SET head = :head, branch = (SELECT b.number FROM branches AS b WHERE b.key = :head),
    last = (SELECT b.last FROM branches AS b WHERE b.key = :head), message_count = :message_count,
    token_count = :token_count, input_tokens = :input_tokens, output_tokens = :output_tokens
WHERE key = :session

-- name: session_raise_last
-- Raise the last position of a session if a branch is its head.
UPDATE sessions SET last = max(last, :last) WHERE key = :session AND head = :branch

-- name: session_count
-- Change the counts of a session during an import, without a new revision.
UPDATE sessions
SET message_count = message_count + :messages, token_count = token_count + :tokens,
    input_tokens = input_tokens + :input_tokens, output_tokens = output_tokens + :output_tokens,
    last_message_at = coalesce(last_message_at, :newest)
WHERE key = :session

-- name: branch_raise_last
-- Raise the last position of a branch.
UPDATE branches SET last = max(last, :last) WHERE key = :branch

-- name: turn_import
-- Insert a turn with all its columns, or replace it.
INSERT INTO turns (
    key, status, started_at, ended_at, latency_ms, input_tokens, output_tokens, model, error, holder, lease_until
) VALUES (
    (:branch << 32) | :position, :status, :started_at, :ended_at, :latency_ms, :input_tokens, :output_tokens, :model,
    :error, :holder, :lease_until
)
ON CONFLICT (key) DO UPDATE
SET status = excluded.status, started_at = excluded.started_at, ended_at = excluded.ended_at,
    latency_ms = excluded.latency_ms, input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
    model = excluded.model, error = excluded.error, holder = excluded.holder, lease_until = excluded.lease_until

-- name: compaction_import
-- Insert a compaction with all its columns.
INSERT INTO compactions (
    branch, from_position, to_position, round, tokens_before, tokens_after, summary, created_at, undone_at
) VALUES (
    :branch, :from_position, :to_position, :round, :tokens_before, :tokens_after, :summary, :created_at, :undone_at
)

-- name: compaction_retract
-- Mark an imported compaction as undone.
UPDATE compactions SET undone_at = :undone_at
WHERE branch = :branch AND to_position = :to_position AND from_position = :from_position AND round = :round
    AND created_at = :created_at AND undone_at IS NULL

-- name: snapshot_import
-- Insert a snapshot with its times.
INSERT INTO snapshots (session, kind, content, message, tokens, created_at, updated_at)
VALUES (:session, :kind, :content, (:branch << 32) | :position, :tokens, :created_at, :updated_at)

-- name: copy_begin
-- Write the journal of a copy if the owner has no data yet, and none from a copy.
INSERT INTO records (owner, kind, key, created_at, updated_at, value)
SELECT :owner, :kind, CAST(:key AS TEXT), :now, :now, :value
WHERE NOT EXISTS (SELECT 1 FROM trees WHERE owner = :owner)
    AND NOT EXISTS (SELECT 1 FROM blobs WHERE owner = :owner)
    AND NOT EXISTS (SELECT 1 FROM records WHERE owner = :owner AND kind <> 'recollect.deleted')
ON CONFLICT (owner, session, kind, key) DO NOTHING

-- name: copy_size
-- Return an estimate of the number of an owner's messages, and the number of its blobs.
SELECT
    coalesce((SELECT sum(CASE WHEN s.head = b.key THEN s.last ELSE b.last END - b.fork_at)
        FROM trees AS t JOIN branches AS b ON b.tree = t.key LEFT JOIN sessions AS s ON s.key = b.session
        WHERE t.owner = :owner), 0) AS messages,
    (SELECT count(*) FROM blobs WHERE owner = :owner) AS blobs

-- name: blobs_after
-- Return a page of an owner's blobs without their payloads, for a copy.
SELECT hash, size, refs, created_at FROM blobs WHERE owner = :owner AND hash > :after ORDER BY hash LIMIT :limit

-- name: blob_import
-- Insert a blob with its reference count, for a copy.
INSERT INTO blobs (owner, hash, size, refs, data, created_at) VALUES (:owner, :hash, :size, :refs, :data, :created_at)
ON CONFLICT (owner, hash) DO NOTHING

-- name: trees_after
-- Return a page of the trees of an owner, for a copy.
SELECT key, branches FROM trees WHERE owner = :owner AND key > :after ORDER BY key LIMIT :limit

-- name: pins_of_span
-- Return the pinned positions of a span.
SELECT message & 4294967295 AS position FROM pins
WHERE message > (:branch << 32) | :low AND message <= (:branch << 32) | :high
ORDER BY message

-- name: appends_after
-- Return a page of a session's idempotency keys, for a copy.
SELECT key, digest, branch, position, count, created_at FROM appends
WHERE session = :session AND key > :after ORDER BY key LIMIT :limit

-- name: append_copy
-- Insert an idempotency key with its time, if it does not exist.
INSERT INTO appends (session, key, digest, branch, position, count, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session, key) DO NOTHING

-- name: sessions_linked
-- Return a page of sessions that have a parent, for a copy.
SELECT c.key AS session, c.id, c.deleted_at, c.created_at, p.id AS parent, p.deleted_at AS parent_deleted_at
FROM sessions AS c JOIN sessions AS p ON p.key = c.parent
WHERE c.owner = :owner AND c.parent IS NOT NULL AND c.key > :after
ORDER BY c.key LIMIT :limit

-- name: sessions_with_deleted_parent
-- Return the sessions of a tree whose parent is in the trash, and when it was deleted.
SELECT c.key AS session, p.deleted_at FROM sessions AS c JOIN sessions AS p ON p.key = c.parent
WHERE c.tree = :tree AND p.deleted_at IS NOT NULL

-- name: session_link
-- Set the parent of an imported or copied session. Of sessions with the same id in the trash, the time of deletion decides.
UPDATE sessions
SET parent = coalesce(
    (SELECT p.key FROM sessions AS p
        WHERE p.owner = :owner AND p.id = :parent AND p.deleted_at IS NULL AND :parent_deleted_at IS NULL),
    (SELECT p.key FROM sessions AS p
        WHERE p.owner = :owner AND p.id = :parent AND p.deleted_at IS NOT NULL AND p.deleted_at = :parent_deleted_at
        ORDER BY p.key LIMIT 1)
)
WHERE key IN (
    SELECT c.key FROM sessions AS c
    WHERE c.owner = :owner AND c.id = :id AND c.deleted_at IS NULL AND :deleted_at IS NULL
        AND (:created_at IS NULL OR c.created_at = :created_at) AND c.parent IS NULL
    UNION ALL
    SELECT c.key FROM sessions AS c
    WHERE c.owner = :owner AND c.id = :id AND c.deleted_at IS NOT NULL AND c.deleted_at = :deleted_at
        AND c.created_at = :created_at AND c.parent IS NULL
)
