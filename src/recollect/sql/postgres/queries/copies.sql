-- owners_visible: owners_all shows every owner if only the policies of the migrations exist and none restricts this role.

-- shared: on_branch
-- Condition: the row belongs to the branch with the key :branch.
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int

-- shared: in_range
-- Condition: the position is in a span, without its lower bound.
position > :low::bigint AND position <= :high::bigint

-- shared: of_session
-- Condition: the row belongs to the session with the key :session.
tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int

-- before: owners_all
SELECT set_config('recollect.listing', 'on', true)

-- name: owners_all
-- Return every owner that has data.
SELECT owner FROM recollect.trees
UNION SELECT owner FROM recollect.blobs
UNION SELECT owner FROM recollect.settings
ORDER BY 1

-- name: owners_visible
-- Return whether owners_all shows every owner to this role.
SELECT r.rolsuper OR r.rolbypassrls OR NOT EXISTS (
    SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'recollect' AND c.relrowsecurity AND (
        EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = c.oid AND NOT p.polpermissive)
        OR NOT EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = c.oid AND p.polcmd = '*' AND 0 = ANY(p.polroles))
        OR c.relname IN ('trees', 'blobs', 'settings') AND NOT EXISTS (
            SELECT FROM pg_policy AS p
            WHERE p.polrelid = c.oid AND p.polname = c.relname || '_listing' AND 0 = ANY(p.polroles)
        )
    )
)
FROM pg_roles AS r WHERE r.rolname = current_user

-- name: copy_target_used
-- Return whether an owner has any data except the journal of a copy.
SELECT EXISTS (SELECT 1 FROM recollect.trees WHERE owner = :owner)
    OR EXISTS (SELECT 1 FROM recollect.blobs WHERE owner = :owner)
    OR EXISTS (SELECT 1 FROM recollect.settings WHERE owner = :owner AND key <> :key)

-- lock: copy_journal
SELECT key FROM recollect.settings WHERE owner = :owner AND key = :key FOR UPDATE

-- name: copy_journal
-- Return the journal of a copy; locks it if the operation writes.
SELECT value FROM recollect.settings WHERE owner = :owner AND key = :key

-- name: copy_size
-- Return an estimate of the number of an owner's messages, and the number of its blobs.
SELECT
    coalesce((SELECT sum(CASE WHEN s.branch = b.number THEN s.last ELSE b.last END - b.fork_at)
        FROM recollect.branches AS b LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
        WHERE b.owner = :owner), 0),
    (SELECT count(*) FROM recollect.blobs WHERE owner = :owner)

-- name: blobs_after
-- Return a page of an owner's blobs without their payloads, for a copy.
SELECT hash, size, refs, created_at FROM recollect.blobs
WHERE owner = :owner AND hash > :hash ORDER BY hash LIMIT :limit

-- name: blob_import
-- Insert a blob with its reference count, for a copy.
INSERT INTO recollect.blobs (owner, hash, size, refs, data, created_at)
VALUES (:owner, :hash, :size, :refs, :data, :created_at)
ON CONFLICT (owner, hash) DO NOTHING

-- name: tree_after
-- Return the next tree of an owner, for a copy.
SELECT tree, branches FROM recollect.trees WHERE owner = :owner AND tree > :tree ORDER BY tree LIMIT 1

-- shared: parent_key
-- The tree and number of a parent, as a SELECT of its own; the top of sessions.sql has the reason.
(SELECT c.parent >> 20 AS tree, (c.parent & 1048575)::int AS number OFFSET 0)

-- name: sessions_full
-- Return all columns of the sessions of a tree, for a copy.
SELECT (c.tree << 20) | c.number, c.id, c.branch, c.last, c.open_turns, c.relation, c.revision, c.message_count,
    c.token_count, c.input_tokens, c.output_tokens, c.created_at, c.updated_at, c.active_at, c.last_message_at,
    c.pinned_at, c.archived_at, c.deleted_at, c.status, c.channel, c.channel_id, c.external_id, c.title, c.task,
    c.provider, c.provider_config, c.model, c.working_dir, c.system_prompt, c.color, c.metadata, c.data_schema_version,
    p.id, p.deleted_at
FROM recollect.sessions AS c
LEFT JOIN LATERAL {parent_key} AS parent ON true
LEFT JOIN recollect.sessions AS p ON p.tree = parent.tree AND p.number = parent.number
WHERE c.tree = :tree ORDER BY c.number

-- name: session_copy
-- Insert a session with all its columns, for a copy.
WITH tree_counter AS (
    UPDATE recollect.trees SET sessions = sessions + 1 WHERE tree = :tree RETURNING tree, sessions
)
INSERT INTO recollect.sessions (
    tree, number, owner, id, branch, last, open_turns, relation, revision, message_count, token_count, input_tokens,
    output_tokens, created_at, updated_at, active_at, last_message_at, pinned_at, archived_at, deleted_at, status,
    channel, channel_id, external_id, title, task, provider, provider_config, model, working_dir, system_prompt, color,
    metadata, data_schema_version
)
SELECT
    tree_counter.tree, tree_counter.sessions, :owner::text, :id::text, :branch::int, :last::int, :open_turns::int, :relation::text,
    :revision::bigint, :message_count::bigint, :token_count::bigint, :input_tokens::bigint, :output_tokens::bigint,
    :created_at::bigint, :updated_at::bigint, :active_at::bigint, :last_message_at::bigint, :pinned_at::bigint,
    :archived_at::bigint, :deleted_at::bigint, :status::text, :channel::text, :channel_id::text, :external_id::text,
    :title::text, :task::text, :provider::text, :provider_config::text, :model::text, :working_dir::text,
    :system_prompt::text, :color::text, :metadata::text, :data_schema_version::int
FROM tree_counter
RETURNING (tree << 20) | number

-- name: session_set_head
-- Set the head branch of a copied session.
UPDATE recollect.sessions SET branch = (:head::bigint & 1048575)::int
WHERE tree = :session::bigint >> 20 AND number = (:session::bigint & 1048575)::int

-- name: branches_full
-- Return all columns of the branches of a tree, for a copy.
SELECT number, (tree << 20) | session, (tree << 20) | parent, fork_at, last, open_turn, created_at, (tree << 20) | number
FROM recollect.branches WHERE tree = :tree ORDER BY number

-- name: branch_copy
-- Insert a branch with all its columns, for a copy.
INSERT INTO recollect.branches (tree, number, session, parent, fork_at, last, open_turn, created_at)
VALUES (:tree, :number, (:session::bigint & 1048575)::int, (:parent::bigint & 1048575)::int, :fork_at, :last,
    :open_turn, :created_at)
RETURNING (tree << 20) | number

-- name: turns_full
-- Return all columns of the turns of a span, for a copy.
SELECT position, status, started_at, ended_at, latency_ms, input_tokens, output_tokens, model, error, holder, lease_until
FROM recollect.turns WHERE {on_branch} AND {in_range}
ORDER BY position

-- name: pins_between
-- Return the pinned positions of a span, for a copy.
SELECT position FROM recollect.pins WHERE {on_branch} AND {in_range} ORDER BY position

-- name: compactions_full
-- Return all columns of the compactions of a branch, for a copy.
SELECT from_position, to_position, round, tokens_before, tokens_after, summary, created_at, undone_at
FROM recollect.compactions WHERE {on_branch} ORDER BY number

-- name: snapshots_full
-- Return all columns of the snapshots of a session, for a copy.
SELECT kind, content, (tree << 20) | branch, position, tokens, created_at, updated_at
FROM recollect.snapshots WHERE {of_session} ORDER BY number

-- name: appends_after
-- Return a page of a session's idempotency keys, for a copy.
SELECT key, digest, (tree << 20) | branch, position, count, created_at FROM recollect.appends
WHERE {of_session} AND key > :key ORDER BY key LIMIT :limit

-- name: sessions_linked
-- Return a page of sessions that have a parent, for a copy.
SELECT (c.tree << 20) | c.number, c.id, c.deleted_at, c.created_at, p.id, p.deleted_at
FROM recollect.sessions AS c
JOIN LATERAL {parent_key} AS parent ON true
JOIN recollect.sessions AS p ON p.tree = parent.tree AND p.number = parent.number
WHERE c.owner = :owner AND c.parent IS NOT NULL
    AND (c.tree, c.number) > (:after::bigint >> 20, (:after::bigint & 1048575)::int)
ORDER BY c.tree, c.number LIMIT :limit

-- name: session_copy_parent
-- Set the parent of a copied session.
UPDATE recollect.sessions
SET parent = coalesce(
    (SELECT (p.tree << 20) | p.number FROM recollect.sessions AS p
        WHERE p.owner = :owner AND p.id = :parent AND p.deleted_at IS NULL AND :parent_deleted::bigint IS NULL),
    (SELECT (p.tree << 20) | p.number FROM recollect.sessions AS p
        WHERE p.owner = :owner AND p.id = :parent AND p.deleted_at IS NOT NULL
            AND p.deleted_at = :parent_deleted::bigint
        ORDER BY p.tree, p.number LIMIT 1)
)
WHERE (tree, number) IN (
    SELECT c.tree, c.number FROM recollect.sessions AS c
    WHERE c.owner = :owner AND c.id = :id AND c.deleted_at IS NULL AND :deleted::bigint IS NULL
        AND c.created_at = :created_at AND c.parent IS NULL
    UNION ALL
    SELECT c.tree, c.number FROM recollect.sessions AS c
    WHERE c.owner = :owner AND c.id = :id AND c.deleted_at IS NOT NULL AND c.deleted_at = :deleted::bigint
        AND c.created_at = :created_at AND c.parent IS NULL
)

-- name: settings_after
-- Return a page of settings, for a copy.
SELECT key, value, updated_at FROM recollect.settings WHERE owner = :owner AND key > :key ORDER BY key LIMIT :limit
