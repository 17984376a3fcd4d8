-- name: owners_all
SELECT owner FROM trees UNION SELECT owner FROM blobs UNION SELECT owner FROM settings ORDER BY 1

-- name: owners_seen
SELECT 1

-- name: copy_holds
SELECT EXISTS (SELECT 1 FROM trees WHERE owner = :owner)
    OR EXISTS (SELECT 1 FROM blobs WHERE owner = :owner)
    OR EXISTS (SELECT 1 FROM settings WHERE owner = :owner AND key <> :key)

-- name: copy_journal
SELECT value FROM settings WHERE owner = :owner AND key = :key

-- name: copy_size
SELECT
    coalesce((SELECT sum(CASE WHEN s.head = b.key THEN s.last ELSE b.last END - b.fork_at)
        FROM trees AS t JOIN branches AS b ON b.tree = t.key LEFT JOIN sessions AS s ON s.key = b.session
        WHERE t.owner = :owner), 0),
    (SELECT count(*) FROM blobs WHERE owner = :owner)

-- name: blobs_after
SELECT hash, size, refs, created_at FROM blobs WHERE owner = :owner AND hash > :hash ORDER BY hash LIMIT :limit

-- name: blob_bring
INSERT INTO blobs (owner, hash, size, refs, data, created_at) VALUES (:owner, :hash, :size, :refs, :data, :created_at)
ON CONFLICT (owner, hash) DO NOTHING

-- name: tree_after
SELECT key, branches FROM trees WHERE owner = :owner AND key > :tree ORDER BY key LIMIT 1

-- name: sessions_whole
SELECT key, id, branch, last, open_turns, relation, revision, message_count, token_count, input_tokens, output_tokens,
    created_at, updated_at, active_at, last_message_at, pinned_at, archived_at, deleted_at, status, channel, channel_id,
    external_id, title, task, provider, provider_config, model, working_dir, system_prompt, color, metadata,
    data_schema_version,
    (SELECT p.id FROM sessions AS p WHERE p.key = sessions.parent),
    (SELECT p.deleted_at FROM sessions AS p WHERE p.key = sessions.parent)
FROM sessions WHERE tree = :tree ORDER BY key

-- name: session_copy
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

-- name: session_seat
UPDATE sessions SET head = :head WHERE key = :session

-- name: branches_whole
SELECT number, session, parent, fork_at, last, open_turn, created_at, key FROM branches WHERE tree = :tree ORDER BY number

-- name: branch_copy
INSERT INTO branches (tree, number, session, parent, fork_at, last, open_turn, created_at)
VALUES (:tree, :number, :session, :parent, :fork_at, :last, :open_turn, :created_at)
RETURNING key

-- name: turns_whole
SELECT key & 4294967295, status, started_at, ended_at, latency_ms, input_tokens, output_tokens, model, error, holder,
    lease_until
FROM turns WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high
ORDER BY key

-- name: pins_between
SELECT message & 4294967295 FROM pins
WHERE message > (:branch << 32) | :low AND message <= (:branch << 32) | :high
ORDER BY message

-- name: compactions_whole
SELECT from_position, to_position, round, tokens_before, tokens_after, summary, created_at, undone_at
FROM compactions WHERE branch = :branch ORDER BY key

-- name: snapshots_whole
SELECT kind, content, message >> 32, message & 4294967295, tokens, created_at, updated_at
FROM snapshots WHERE session = :session ORDER BY key

-- name: appends_after
SELECT key, digest, branch, position, count, created_at FROM appends
WHERE session = :session AND key > :key ORDER BY key LIMIT :limit

-- name: sessions_linked
SELECT c.key, c.id, c.deleted_at, c.created_at, p.id, p.deleted_at
FROM sessions AS c JOIN sessions AS p ON p.key = c.parent
WHERE c.owner = :owner AND c.parent IS NOT NULL AND c.key > :after
ORDER BY c.key LIMIT :limit

-- name: session_adopt
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
SELECT key, value, updated_at FROM settings WHERE owner = :owner AND key > :key ORDER BY key LIMIT :limit
