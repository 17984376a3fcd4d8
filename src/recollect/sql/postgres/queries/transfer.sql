-- shared: message_row
-- All columns of a message, in the order of an export.
position, turn, role, state, tokens, input_tokens, output_tokens, created_at, completed_at, format, model, error,
metadata, native, blobs, parts, deleted_at

-- shared: on_branch
-- Condition: the row belongs to the branch with the key :branch.
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int

-- shared: in_range
-- Condition: the position is in a span, without its lower bound.
position > :low::bigint AND position <= :high::bigint

-- shared: is_session
-- Condition: the session has the key :session.
tree = :session::bigint >> 20 AND number = (:session::bigint & 1048575)::int

-- shared: parent_key
-- The key of a parent by its id.
(SELECT (p.tree << 20) | p.number FROM recollect.sessions AS p
    WHERE p.owner = :owner AND p.id = :parent AND p.deleted_at IS NULL)

-- name: sessions_created_after
-- Return a page of session ids, oldest first, for an export.
SELECT created_at, (tree << 20) | number, id, tree FROM recollect.sessions
WHERE owner = :owner AND deleted_at IS NULL
    AND (created_at, tree, number) > (:at::bigint, :key::bigint >> 20, (:key::bigint & 1048575)::int)
ORDER BY created_at, tree, number LIMIT :limit

-- name: branches_outline
-- Return the branches of a tree with their last positions, for an export.
SELECT (b.tree << 20) | b.number, b.number, (b.tree << 20) | b.session, (b.tree << 20) | b.parent, b.fork_at,
    CASE WHEN s.branch = b.number THEN s.last ELSE b.last END, b.created_at
FROM recollect.branches AS b LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
WHERE b.tree = :tree
ORDER BY b.number

-- name: messages_sizes
-- Return the position and size in bytes of messages of a span.
SELECT position, octet_length(parts) FROM recollect.messages
WHERE {on_branch} AND {in_range} AND (deleted_at IS NULL OR :deleted::boolean)
ORDER BY position LIMIT :limit

-- lock: messages_rows
SELECT s.number FROM recollect.sessions AS s
WHERE s.tree = :branch::bigint >> 20 AND s.number = (
    SELECT b.session FROM recollect.branches AS b
    WHERE b.tree = :branch::bigint >> 20 AND b.number = (:branch::bigint & 1048575)::int
)
FOR NO KEY UPDATE

-- name: messages_rows
-- Return the rows of the messages of a span, for an export or a copy.
SELECT {message_row} FROM recollect.messages
WHERE {on_branch} AND {in_range} AND (deleted_at IS NULL OR :deleted::boolean)
ORDER BY position

-- name: message_row
-- Return the row of a message, for an export.
SELECT {message_row} FROM recollect.messages WHERE {on_branch} AND position = :position

-- name: tool_calls_of_span
-- Return the tool calls of the messages of a span, for an export.
SELECT message_position, part, (tree << 20) | branch, call_id, tool, status, result, result_part, created_at,
    started_at, completed_at, latency_ms, error_code, error_message
FROM recollect.tool_calls
WHERE tree = :branch::bigint >> 20 AND message_branch = (:branch::bigint & 1048575)::int
    AND message_position > :low::bigint AND message_position <= :high::bigint
ORDER BY message_position, part, branch

-- name: compactions_outline
-- Return the compactions of a branch up to a position, for an export.
SELECT from_position, to_position, round, tokens_before, tokens_after, summary, created_at, undone_at
FROM recollect.compactions WHERE {on_branch} AND to_position <= :high::bigint
ORDER BY to_position, number

-- lock: snapshots_outline
SELECT number FROM recollect.sessions WHERE {is_session} FOR NO KEY UPDATE

-- name: snapshots_outline
-- Return the snapshots of a session, for an export.
SELECT kind, content, (tree << 20) | branch, position, tokens, created_at, updated_at
FROM recollect.snapshots
WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int
ORDER BY kind, number

-- name: blob_size
-- Return the size of a blob in bytes.
SELECT size FROM recollect.blobs WHERE owner = :owner AND hash = :hash

-- name: tree_raise_branches
-- Raise the highest branch number of a tree.
UPDATE recollect.trees SET branches = greatest(branches, :number::int) WHERE tree = :tree

-- name: session_import
-- Insert a session from an import.
WITH tree_counter AS (
    UPDATE recollect.trees SET sessions = sessions + 1 WHERE tree = :tree RETURNING tree, sessions
)
INSERT INTO recollect.sessions (
    tree, number, owner, id, parent, relation, revision, created_at, updated_at, active_at, last_message_at, pinned_at,
    archived_at, status, channel, channel_id, external_id, title, task, provider, provider_config, model, working_dir,
    system_prompt, color, metadata, data_schema_version
)
SELECT
    tree_counter.tree, tree_counter.sessions, :owner::text, :id::text, {parent_key}, :relation::text, :revision::bigint,
    :created_at::bigint, :updated_at::bigint, :active_at::bigint, :last_message_at::bigint, :pinned_at::bigint,
    :archived_at::bigint, :status::text, :channel::text, :channel_id::text, :external_id::text, :title::text,
    :task::text, :provider::text, :provider_config::text, :model::text, :working_dir::text, :system_prompt::text,
    :color::text, :metadata::text, :data_schema_version::int
FROM tree_counter
RETURNING (tree << 20) | number

-- name: session_renew
-- Replace the fields of a session with those of an import.
UPDATE recollect.sessions
SET relation = coalesce(relation, :relation), created_at = :created_at,
    updated_at = greatest(updated_at, :updated_at), active_at = greatest(active_at, :active_at),
    last_message_at = :last_message_at, pinned_at = :pinned_at, archived_at = :archived_at, status = :status,
    channel = :channel, channel_id = :channel_id, external_id = :external_id,
    title_changed = CASE WHEN title IS DISTINCT FROM :title::text THEN true ELSE title_changed END, title = :title::text,
    task = :task,
    provider = :provider, provider_config = :provider_config, model = coalesce(model, :model), working_dir = :working_dir,
    system_prompt = :system_prompt, color = :color, metadata = :metadata
WHERE {is_session}

-- name: session_raise_revision
-- Raise the revision and the times of a session after an import.
UPDATE recollect.sessions
SET revision = CASE WHEN revision > :revision::bigint THEN revision + 1 ELSE :revision::bigint END,
    updated_at = greatest(updated_at, :updated_at), last_message_at = greatest(last_message_at, :last_message_at)
WHERE {is_session}

-- name: session_import_head
-- Set the head branch and the counts of an imported session.
UPDATE recollect.sessions
SET branch = b.number, last = b.last, waiting = true, message_count = :message_count, token_count = :token_count,
    input_tokens = :input_tokens, output_tokens = :output_tokens
FROM recollect.branches AS b
WHERE b.tree = :head::bigint >> 20 AND b.number = (:head::bigint & 1048575)::int
    AND sessions.tree = :session::bigint >> 20 AND sessions.number = (:session::bigint & 1048575)::int

-- name: session_link
-- Set the parent of an imported session.
UPDATE recollect.sessions SET parent = {parent_key}
WHERE owner = :owner AND id = :id AND deleted_at IS NULL AND parent IS NULL

-- name: session_raise_last
-- Raise the last position of a session if a branch is its head.
UPDATE recollect.sessions SET last = greatest(last, :last::int), waiting = true
WHERE {is_session} AND branch = (:branch::bigint & 1048575)::int

-- name: session_count
-- Change the counts of a session during an import, without a new revision.
UPDATE recollect.sessions
SET message_count = message_count + :messages, token_count = token_count + :tokens,
    input_tokens = input_tokens + :input_tokens, output_tokens = output_tokens + :output_tokens,
    last_message_at = coalesce(last_message_at, :newest)
WHERE {is_session}

-- name: branch_raise_last
-- Raise the last position of a branch.
UPDATE recollect.branches SET last = greatest(last, :last::int)
WHERE tree = :branch::bigint >> 20 AND number = (:branch::bigint & 1048575)::int

-- name: turn_import
-- Insert a turn with all its columns, or replace it.
INSERT INTO recollect.turns (
    tree, branch, position, status, started_at, ended_at, latency_ms, input_tokens, output_tokens, model, error, holder,
    lease_until
) VALUES (
    :branch::bigint >> 20, (:branch::bigint & 1048575)::int, :position, :status, :started_at, :ended_at, :latency_ms,
    :input_tokens, :output_tokens, :model, :error, :holder, :lease_until
)
ON CONFLICT (tree, branch, position) DO UPDATE
SET status = excluded.status, started_at = excluded.started_at, ended_at = excluded.ended_at,
    latency_ms = excluded.latency_ms, input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
    model = excluded.model, error = excluded.error, holder = excluded.holder, lease_until = excluded.lease_until

-- name: compaction_import
-- Insert a compaction with all its columns.
INSERT INTO recollect.compactions (
    tree, branch, from_position, to_position, round, tokens_before, tokens_after, summary, created_at, undone_at
) VALUES (
    :branch::bigint >> 20, (:branch::bigint & 1048575)::int, :from_position, :to_position, :round, :tokens_before,
    :tokens_after, :summary, :created_at, :undone_at
)

-- name: compaction_retract
-- Mark an imported compaction as undone.
UPDATE recollect.compactions SET undone_at = :undone_at
WHERE {on_branch} AND to_position = :to_position AND from_position = :from_position AND round = :round
    AND created_at = :created_at AND undone_at IS NULL

-- name: snapshot_import
-- Insert a snapshot with its times.
INSERT INTO recollect.snapshots (tree, session, kind, content, branch, position, tokens, created_at, updated_at)
VALUES (:session::bigint >> 20, (:session::bigint & 1048575)::int, :kind, :content, (:branch::bigint & 1048575)::int,
    :position, :tokens, :created_at, :updated_at)
