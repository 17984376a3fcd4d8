-- name: owners_all
-- Return every owner that has data.
SELECT owner FROM trees UNION SELECT owner FROM blobs UNION SELECT owner FROM settings ORDER BY 1

-- name: owners_visible
-- Return whether owners_all shows every owner to this role.
SELECT 1

-- name: copy_target_used
-- Return whether an owner has any data except the journal of a copy.
SELECT EXISTS (SELECT 1 FROM trees WHERE owner = :owner)
    OR EXISTS (SELECT 1 FROM blobs WHERE owner = :owner)
    OR EXISTS (SELECT 1 FROM settings WHERE owner = :owner AND key <> :key)

-- name: copy_journal
-- Return the journal of a copy; locks it if the operation writes.
SELECT value FROM settings WHERE owner = :owner AND key = :key

-- name: copy_size
-- Return an estimate of the number of an owner's messages, and the number of its blobs.
SELECT
    coalesce((SELECT sum(CASE WHEN s.head = b.key THEN s.last ELSE b.last END - b.fork_at)
        FROM trees AS t JOIN branches AS b ON b.tree = t.key LEFT JOIN sessions AS s ON s.key = b.session
        WHERE t.owner = :owner), 0),
    (SELECT count(*) FROM blobs WHERE owner = :owner)

-- name: blobs_after
-- Return a page of an owner's blobs without their payloads, for a copy.
SELECT hash, size, refs, created_at FROM blobs WHERE owner = :owner AND hash > :hash ORDER BY hash LIMIT :limit

-- name: blob_import
-- Insert a blob with its reference count, for a copy.
INSERT INTO blobs (owner, hash, size, refs, data, created_at) VALUES (:owner, :hash, :size, :refs, :data, :created_at)
ON CONFLICT (owner, hash) DO NOTHING

-- name: tree_after
-- Return the next tree of an owner, for a copy.
SELECT key, branches FROM trees WHERE owner = :owner AND key > :tree ORDER BY key LIMIT 1

-- name: sessions_full
-- Return all columns of the sessions of a tree, for a copy.
SELECT key, id, branch, last, open_turns, relation, revision, message_count, token_count, input_tokens, output_tokens,
    created_at, updated_at, active_at, last_message_at, pinned_at, archived_at, deleted_at, status, channel, channel_id,
    external_id, title, task, provider, provider_config, model, working_dir, system_prompt, color, metadata,
    data_schema_version,
    (SELECT p.id FROM sessions AS p WHERE p.key = sessions.parent),
    (SELECT p.deleted_at FROM sessions AS p WHERE p.key = sessions.parent)
FROM sessions WHERE tree = :tree ORDER BY key

-- name: session_copy
-- Insert a session with all its columns, for a copy.
INSERT INTO sessions (
    owner, tree, id, branch, last, open_turns, relation, revision, message_count, token_count, input_tokens,
    output_tokens, created_at, updated_at, active_at, last_message_at, pinned_at, archived_at, deleted_at, status,
    channel, channel_id, external_id, title, task, provider, provider_config, model, working_dir, system_prompt, color,
    metadata, data_schema_version
) VALUES (
    :owner, :tree, :id, :branch, :last, :open_turns, :relation, :revision, :message_count, :token_count, :input_tokens,
    :output_tokens, :created_at, :updated_at, :active_at, :last_message_at, :pinned_at, :archived_at, :deleted_at,
    :status, :channel, :channel_id, :external_id, :title, :task, :provider, :provider_config, :model, :working_dir,
    :system_prompt, :color, :metadata, :data_schema_version
)
RETURNING key

-- name: session_set_head
-- Set the head branch of a copied session.
UPDATE sessions SET head = :head WHERE key = :session

-- name: branches_full
-- Return all columns of the branches of a tree, for a copy.
SELECT number, session, parent, fork_at, last, open_turn, created_at, key FROM branches WHERE tree = :tree ORDER BY number

-- name: branch_copy
-- Insert a branch with all its columns, for a copy.
INSERT INTO branches (tree, number, session, parent, fork_at, last, open_turn, created_at)
VALUES (:tree, :number, :session, :parent, :fork_at, :last, :open_turn, :created_at)
RETURNING key

-- name: turns_full
-- Return all columns of the turns of a span, for a copy.
SELECT key & 4294967295, status, started_at, ended_at, latency_ms, input_tokens, output_tokens, model, error, holder,
    lease_until
FROM turns WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high
ORDER BY key

-- name: pins_between
-- Return the pinned positions of a span, for a copy.
SELECT message & 4294967295 FROM pins
WHERE message > (:branch << 32) | :low AND message <= (:branch << 32) | :high
ORDER BY message

-- name: compactions_full
-- Return all columns of the compactions of a branch, for a copy.
SELECT from_position, to_position, round, tokens_before, tokens_after, summary, created_at, undone_at
FROM compactions WHERE branch = :branch ORDER BY key

-- name: snapshots_full
-- Return all columns of the snapshots of a session, for a copy.
SELECT kind, content, message >> 32, message & 4294967295, tokens, created_at, updated_at
FROM snapshots WHERE session = :session ORDER BY key

-- name: appends_after
-- Return a page of a session's idempotency keys, for a copy.
SELECT key, digest, branch, position, count, created_at FROM appends
WHERE session = :session AND key > :key ORDER BY key LIMIT :limit

-- name: sessions_linked
-- Return a page of sessions that have a parent, for a copy.
SELECT c.key, c.id, c.deleted_at, c.created_at, p.id, p.deleted_at
FROM sessions AS c JOIN sessions AS p ON p.key = c.parent
WHERE c.owner = :owner AND c.parent IS NOT NULL AND c.key > :after
ORDER BY c.key LIMIT :limit

-- name: session_copy_parent
-- Set the parent of a copied session.
UPDATE sessions
SET parent = coalesce(
    (SELECT p.key FROM sessions AS p
        WHERE p.owner = :owner AND p.id = :parent AND p.deleted_at IS NULL AND :parent_deleted IS NULL),
    (SELECT p.key FROM sessions AS p
        WHERE p.owner = :owner AND p.id = :parent AND p.deleted_at IS NOT NULL AND p.deleted_at = :parent_deleted
        ORDER BY p.key LIMIT 1)
)
WHERE key IN (
    SELECT c.key FROM sessions AS c
    WHERE c.owner = :owner AND c.id = :id AND c.deleted_at IS NULL AND :deleted IS NULL
        AND c.created_at = :created_at AND c.parent IS NULL
    UNION ALL
    SELECT c.key FROM sessions AS c
    WHERE c.owner = :owner AND c.id = :id AND c.deleted_at IS NOT NULL AND c.deleted_at = :deleted
        AND c.created_at = :created_at AND c.parent IS NULL
)

-- name: settings_after
-- Return a page of settings, for a copy.
SELECT key, value, updated_at FROM settings WHERE owner = :owner AND key > :key ORDER BY key LIMIT :limit
