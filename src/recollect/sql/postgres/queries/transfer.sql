-- shared: message_row
-- All columns of a message.
position, turn, role, state, tokens, input_tokens, output_tokens, created_at, completed_at, format, model, error,
metadata, native, blobs, parts, client_key, edited_at, deleted_at

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
-- The tree and number of a parent, as a SELECT of its own; the top of sessions.sql has the reason.
(SELECT c.parent >> 20 AS tree, (c.parent & 1048575)::int AS number OFFSET 0)

-- name: sessions_created_after
-- Return a page of session ids, oldest first, for an export.
SELECT created_at, (tree << 20) | number AS key, id, tree FROM recollect.sessions
WHERE owner = :owner AND deleted_at IS NULL
    AND (created_at, tree, number) > (:at::bigint, :key::bigint >> 20, (:key::bigint & 1048575)::int)
ORDER BY created_at, tree, number LIMIT :limit

-- name: branches_outline
-- Return the branches of a tree with their last positions.
SELECT (b.tree << 20) | b.number AS key, b.number, (b.tree << 20) | b.session AS session,
    (b.tree << 20) | b.parent AS parent, b.fork_at, CASE WHEN s.branch = b.number THEN s.last ELSE b.last END AS last,
    b.created_at, b.last AS column_last, b.open_turn
FROM recollect.branches AS b LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
WHERE b.tree = :tree
ORDER BY b.number

-- name: messages_sizes
-- Return the position and size in bytes of messages of a span, with their earlier versions.
SELECT position, octet_length(parts) + coalesce((
    SELECT sum(octet_length(v.parts)) FROM recollect.message_versions AS v
    WHERE v.tree = messages.tree AND v.branch = messages.branch AND v.position = messages.position
), 0) AS size
FROM recollect.messages
WHERE {on_branch} AND {in_range} AND (deleted_at IS NULL OR :deleted::boolean)
ORDER BY position LIMIT :limit

-- name: messages_rows_lock
-- Lock the rows that messages_rows reads.
SELECT s.number FROM recollect.sessions AS s
WHERE s.tree = :branch::bigint >> 20 AND s.number = (
    SELECT b.session FROM recollect.branches AS b
    WHERE b.tree = :branch::bigint >> 20 AND b.number = (:branch::bigint & 1048575)::int
)
FOR NO KEY UPDATE

-- name: messages_rows
-- Return the rows of the messages of a span.
SELECT {message_row} FROM recollect.messages
WHERE {on_branch} AND {in_range} AND (deleted_at IS NULL OR :deleted::boolean)
ORDER BY position

-- name: message_row
-- Return the row of a message, for an export.
SELECT {message_row} FROM recollect.messages WHERE {on_branch} AND position = :position

-- name: tool_calls_of_span
-- Return the tool calls of the messages of a span.
SELECT message_position AS position, part, (tree << 20) | branch AS branch, call_id, tool, status, result, result_part,
    created_at, started_at, completed_at, latency_ms, error_code, error_message
FROM recollect.tool_calls
WHERE tree = :branch::bigint >> 20 AND message_branch = (:branch::bigint & 1048575)::int
    AND message_position > :low::bigint AND message_position <= :high::bigint
ORDER BY message_position, part, branch

-- name: compactions_outline
-- Return the compactions of a branch up to a position, in the order in which they were made.
SELECT from_position, to_position, round, tokens_before, tokens_after, summary, created_at, undone_at
FROM recollect.compactions WHERE {on_branch} AND to_position <= :high::bigint
ORDER BY number

-- name: snapshots_outline_lock
-- Lock the rows that snapshots_outline reads.
SELECT number FROM recollect.sessions WHERE {is_session} FOR NO KEY UPDATE

-- name: snapshots_outline
-- Return the snapshots of a session, in the order in which they were made.
SELECT kind, content, (tree << 20) | branch AS branch, position, tokens, created_at, updated_at
FROM recollect.snapshots
WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int
ORDER BY number

-- name: blob_size
-- Return the size of a blob in bytes.
SELECT size FROM recollect.blobs WHERE owner = :owner AND hash = :hash

-- name: tree_raise_branches
-- Raise the highest branch number of a tree.
UPDATE recollect.trees SET branches = greatest(branches, :number::int) WHERE tree = :tree

-- name: branch_copy
-- Insert a branch with all its columns, for a copy.
INSERT INTO recollect.branches (tree, number, session, parent, fork_at, last, open_turn, created_at)
VALUES (:tree, :number, (:session::bigint & 1048575)::int, (:parent::bigint & 1048575)::int, :fork_at, :last,
    :open_turn, :created_at)
RETURNING (tree << 20) | number AS key

-- name: session_renew
-- Replace the times of a session with those of an import.
UPDATE recollect.sessions
SET relation = coalesce(relation, :relation), created_at = :created_at, active_at = greatest(active_at, :active_at),
    last_message_at = :last_message_at
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

-- name: copy_begin
-- Write the journal of a copy if the owner has no data yet, and none from a copy.
INSERT INTO recollect.records (owner, kind, key, created_at, updated_at, value)
SELECT :owner::text, :kind::text, :key::bytea, :now::bigint, :now::bigint, :value::text
WHERE NOT EXISTS (SELECT 1 FROM recollect.trees WHERE owner = :owner)
    AND NOT EXISTS (SELECT 1 FROM recollect.blobs WHERE owner = :owner)
    AND NOT EXISTS (SELECT 1 FROM recollect.records WHERE owner = :owner AND kind <> 'recollect.deleted')
ON CONFLICT (owner, session, kind, key) DO NOTHING

-- name: copy_size
-- Return an estimate of the number of an owner's messages, and the number of its blobs.
SELECT
    coalesce((SELECT sum(CASE WHEN s.branch = b.number THEN s.last ELSE b.last END - b.fork_at)
        FROM recollect.branches AS b LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
        WHERE b.owner = :owner), 0) AS messages,
    (SELECT count(*) FROM recollect.blobs WHERE owner = :owner) AS blobs

-- name: blobs_after
-- Return a page of an owner's blobs without their payloads, for a copy.
SELECT hash, size, refs, created_at FROM recollect.blobs
WHERE owner = :owner AND hash > :after ORDER BY hash LIMIT :limit

-- name: blob_import
-- Insert a blob with its reference count, for a copy.
INSERT INTO recollect.blobs (owner, hash, size, refs, data, created_at)
VALUES (:owner, :hash, :size, :refs, :data, :created_at)
ON CONFLICT (owner, hash) DO NOTHING

-- name: trees_after
-- Return a page of the trees of an owner, for a copy.
SELECT tree AS key, branches FROM recollect.trees WHERE owner = :owner AND tree > :after ORDER BY tree LIMIT :limit

-- name: pins_of_span
-- Return the pinned positions of a span.
SELECT position FROM recollect.pins WHERE {on_branch} AND {in_range} ORDER BY position

-- name: appends_after
-- Return a page of a session's idempotency keys, for a copy.
SELECT key, digest, (tree << 20) | branch AS branch, position, count, created_at FROM recollect.appends
WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int AND key > :after ORDER BY key LIMIT :limit

-- name: append_copy
-- Insert an idempotency key with its time, if it does not exist.
INSERT INTO recollect.appends (tree, session, key, digest, branch, position, count, created_at)
VALUES (?1::bigint >> 20, (?1::bigint & 1048575)::int, ?2, ?3, (?4::bigint & 1048575)::int, ?5, ?6, ?7)
ON CONFLICT (tree, session, key) DO NOTHING

-- name: sessions_linked
-- Return a page of sessions that have a parent, for a copy.
SELECT (c.tree << 20) | c.number AS session, c.id, c.deleted_at, c.created_at, p.id AS parent,
    p.deleted_at AS parent_deleted_at
FROM recollect.sessions AS c
JOIN LATERAL {parent_key} AS parent ON true
JOIN recollect.sessions AS p ON p.tree = parent.tree AND p.number = parent.number
WHERE c.owner = :owner AND c.parent IS NOT NULL
    AND (c.tree, c.number) > (:after::bigint >> 20, (:after::bigint & 1048575)::int)
ORDER BY c.tree, c.number LIMIT :limit

-- name: sessions_with_deleted_parent
-- Return the sessions of a tree whose parent is in the trash, and when it was deleted.
SELECT (c.tree << 20) | c.number AS session, p.deleted_at
FROM recollect.sessions AS c
JOIN LATERAL {parent_key} AS parent ON true
JOIN recollect.sessions AS p ON p.tree = parent.tree AND p.number = parent.number
WHERE c.tree = :tree AND c.parent IS NOT NULL AND p.deleted_at IS NOT NULL

-- name: session_link
-- Set the parent of an imported or copied session. Of sessions with the same id in the trash, the time of deletion decides.
UPDATE recollect.sessions
SET parent = coalesce(
    (SELECT (p.tree << 20) | p.number FROM recollect.sessions AS p
        WHERE p.owner = :owner AND p.id = :parent AND p.deleted_at IS NULL AND :parent_deleted_at::bigint IS NULL),
    (SELECT (p.tree << 20) | p.number FROM recollect.sessions AS p
        WHERE p.owner = :owner AND p.id = :parent AND p.deleted_at IS NOT NULL
            AND p.deleted_at = :parent_deleted_at::bigint
        ORDER BY p.tree, p.number LIMIT 1)
)
WHERE (tree, number) IN (
    SELECT c.tree, c.number FROM recollect.sessions AS c
    WHERE c.owner = :owner AND c.id = :id AND c.deleted_at IS NULL AND :deleted_at::bigint IS NULL
        AND (:created_at::bigint IS NULL OR c.created_at = :created_at::bigint) AND c.parent IS NULL
    UNION ALL
    SELECT c.tree, c.number FROM recollect.sessions AS c
    WHERE c.owner = :owner AND c.id = :id AND c.deleted_at IS NOT NULL AND c.deleted_at = :deleted_at::bigint
        AND c.created_at = :created_at::bigint AND c.parent IS NULL
)
