-- shared: message_row
-- All columns of a message, in the order of an export.
key & 4294967295, turn, role, state, tokens, input_tokens, output_tokens, created_at, completed_at, format, model, error,
metadata, native, blobs, parts, deleted_at

-- name: sessions_created_after
-- Return a page of session ids, oldest first, for an export.
SELECT created_at, key, id, tree FROM sessions INDEXED BY sessions_created
WHERE owner = :owner AND deleted_at IS NULL AND (created_at, key) > (:at, :key)
ORDER BY created_at, key LIMIT :limit

-- name: branches_outline
-- Return the branches of a tree with their last positions, for an export.
SELECT b.key, b.number, b.session, b.parent, b.fork_at, CASE WHEN s.head = b.key THEN s.last ELSE b.last END, b.created_at
FROM branches AS b LEFT JOIN sessions AS s ON s.key = b.session
WHERE b.tree = :tree
ORDER BY b.number

-- name: messages_sizes
-- Return the position and size in bytes of messages of a span.
SELECT key & 4294967295, octet_length(parts) FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND (deleted_at IS NULL OR :deleted)
ORDER BY key LIMIT :limit

-- name: messages_rows
-- Return the rows of the messages of a span, for an export or a copy.
SELECT {message_row} FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND (deleted_at IS NULL OR :deleted)
ORDER BY key

-- name: message_row
-- Return the row of a message, for an export.
SELECT {message_row} FROM messages WHERE key = (:branch << 32) | :position

-- name: tool_calls_of_span
-- Return the tool calls of the messages of a span, for an export.
SELECT message & 4294967295, part, branch, call_id, tool, status, result & 4294967295, result_part, created_at, started_at,
    completed_at, latency_ms, error_code, error_message
FROM tool_calls
WHERE message > (:branch << 32) | :low AND message <= (:branch << 32) | :high
ORDER BY message, part, branch

-- name: compactions_outline
-- Return the compactions of a branch up to a position, for an export.
SELECT from_position, to_position, round, tokens_before, tokens_after, summary, created_at, undone_at
FROM compactions WHERE branch = :branch AND to_position <= :high
ORDER BY to_position, key

-- name: snapshots_outline
-- Return the snapshots of a session, for an export.
SELECT kind, content, message >> 32, message & 4294967295, tokens, created_at, updated_at
FROM snapshots WHERE session = :session
ORDER BY kind, key

-- name: blob_size
-- Return the size of a blob in bytes.
SELECT size FROM blobs WHERE owner = :owner AND hash = :hash

-- name: tree_raise_branches
-- Raise the highest branch number of a tree.
UPDATE trees SET branches = max(branches, :number) WHERE key = :tree

-- name: session_import
-- Insert a session from an import.
INSERT INTO sessions (
    owner, id, tree, parent, relation, revision, created_at, updated_at, active_at, last_message_at, pinned_at,
    archived_at, status, channel, channel_id, external_id, title, task, provider, provider_config, model, working_dir,
    system_prompt, color, metadata, data_schema_version
) VALUES (
    :owner, :id, :tree, (SELECT p.key FROM sessions AS p WHERE p.owner = :owner AND p.id = :parent AND p.deleted_at IS NULL),
    :relation, :revision, :created_at, :updated_at, :active_at, :last_message_at, :pinned_at,
    :archived_at, :status, :channel, :channel_id, :external_id, :title, :task, :provider, :provider_config, :model,
    :working_dir, :system_prompt, :color, :metadata, :data_schema_version
)
RETURNING key

-- name: session_renew
-- Replace the fields of a session with those of an import.
UPDATE sessions
SET relation = coalesce(relation, :relation), created_at = :created_at, updated_at = max(updated_at, :updated_at),
    active_at = max(active_at, :active_at), last_message_at = :last_message_at, pinned_at = :pinned_at,
    archived_at = :archived_at, status = :status, channel = :channel, channel_id = :channel_id,
    external_id = :external_id, title_changed = CASE WHEN title IS NOT :title THEN 1 ELSE title_changed END,
    title = :title, task = :task, provider = :provider, provider_config = :provider_config,
    model = coalesce(model, :model), working_dir = :working_dir, system_prompt = :system_prompt, color = :color, metadata = :metadata
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

-- name: session_link
-- Set the parent of an imported session.
UPDATE sessions
SET parent = (SELECT p.key FROM sessions AS p WHERE p.owner = :owner AND p.id = :parent AND p.deleted_at IS NULL)
WHERE owner = :owner AND id = :id AND deleted_at IS NULL AND parent IS NULL

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
