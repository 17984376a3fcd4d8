-- shared: standing
SELECT key, head, last, branch, open_turns, revision, message_count, token_count, input_tokens, output_tokens, updated_at,
    active_at, last_message_at, (
        SELECT o.active_at << 1 | (o.key <> sessions.key) FROM sessions AS o INDEXED BY sessions_active
        WHERE o.owner = :owner AND o.deleted_at IS NULL ORDER BY o.active_at DESC, o.key DESC LIMIT 1
    )
FROM sessions WHERE owner = :owner AND id = :id AND deleted_at IS NULL

-- shared: few
json_group_array(key)

-- shared: picked
(SELECT value AS picked FROM json_each(:keys)) AS k CROSS JOIN sessions ON sessions.key = k.picked

-- shared: session
key, tree, head, open_turns, {told}

-- shared: shown
key, {told}

-- shared: told
id, created_at, updated_at, active_at, last_message_at, channel, channel_id, title, status, model, branch, revision, message_count, token_count, input_tokens, output_tokens, data_schema_version,
CASE WHEN (SELECT 1 FROM sessions AS a INDEXED BY sessions_parent WHERE a.parent IS NOT NULL LIMIT 1)
THEN (SELECT count(*) FROM sessions AS d
    WHERE d.parent = sessions.key AND d.relation = 'delegate' AND d.deleted_at IS NULL)
ELSE 0 END,
CASE WHEN coalesce(parent, external_id, task, provider, provider_config, working_dir, system_prompt, color, pinned_at,
    archived_at, deleted_at, metadata) IS NOT NULL
THEN json_array(
    (SELECT p.id FROM sessions AS p WHERE p.key = sessions.parent), relation, external_id, task, provider,
    provider_config, working_dir, system_prompt, color, pinned_at, archived_at, deleted_at, metadata
) END

-- shared: chosen
(:archived IS NULL OR (archived_at IS NOT NULL) = :archived)
AND (:pinned IS NULL OR (pinned_at IS NOT NULL) = :pinned)
AND (:titled IS NULL OR (title IS NOT NULL) = :titled)
AND (:channel IS NULL OR channel = :channel)
AND (:model IS NULL OR model = :model)
AND (:status IS NULL OR status = :status)
AND (:parent IS NULL OR parent = :parent)
AND (:delegates IS NULL OR (relation IS 'delegate') = :delegates)
AND (:shown IS NULL OR sessions.key NOT IN (SELECT j.value FROM json_each(:shown) AS j))
AND (:tool IS NULL OR EXISTS (
    SELECT 1 FROM branches AS b CROSS JOIN tool_calls AS t
    ON t.message > (b.key << 32) AND t.message <= (b.key << 32) | 4294967295
    WHERE b.session = sessions.key AND t.tool = :tool
))
AND (:role IS NULL OR EXISTS (
    SELECT 1 FROM branches AS b CROSS JOIN messages AS m
    ON m.key > (b.key << 32) AND m.key <= (b.key << 32) | 4294967295
    WHERE b.session = sessions.key AND m.role = :role AND m.deleted_at IS NULL
))

-- name: session_get
SELECT {session} FROM sessions WHERE owner = :owner AND id = :id AND deleted_at IS NULL

-- name: session_open
SELECT {session} FROM sessions WHERE owner = :owner AND id = :id AND deleted_at IS NULL

-- name: session_ensure
SELECT {session} FROM sessions WHERE owner = :owner AND id = :id AND deleted_at IS NULL

-- name: session_create
SELECT 1 WHERE false

-- name: session_by_key
SELECT {session} FROM sessions WHERE key = :session

-- name: session_in_trash
SELECT {session} FROM sessions WHERE owner = :owner AND id = :id AND deleted_at IS NOT NULL
ORDER BY deleted_at DESC, key DESC LIMIT 1

-- name: sessions_by_activity
SELECT {shown} FROM sessions INDEXED BY sessions_active
WHERE owner = :owner AND deleted_at IS NULL AND (active_at, key) < (:at, :key) AND active_at >= :since
    AND {chosen}
ORDER BY active_at DESC, key DESC LIMIT :limit

-- name: sessions_usual
SELECT {shown} FROM sessions INDEXED BY sessions_active
WHERE owner = :owner AND deleted_at IS NULL AND (active_at, key) < (:at, :key) AND active_at >= :since
    AND archived_at IS NULL AND relation IS NOT 'delegate'
ORDER BY active_at DESC, key DESC LIMIT :limit

-- name: sessions_pinned_first
SELECT 1 WHERE false

-- name: sessions_by_creation
SELECT {shown} FROM sessions INDEXED BY sessions_created
WHERE owner = :owner AND deleted_at IS NULL AND (created_at, key) < (:at, :key) AND created_at >= :since
    AND {chosen}
ORDER BY created_at DESC, key DESC LIMIT :limit

-- name: sessions_by_deletion
SELECT {shown} FROM sessions
WHERE owner = :owner AND deleted_at IS NOT NULL AND (deleted_at, key) < (:at, :key) AND deleted_at >= :since
    AND {chosen}
ORDER BY deleted_at DESC, key DESC LIMIT :limit

-- name: sessions_by_folded_title
SELECT {shown} FROM titles CROSS JOIN sessions ON sessions.key = titles.session
WHERE titles.owner = :owner AND (titles.folded, titles.session) > (:folded, :key)
    AND deleted_at IS NULL AND active_at >= :since AND active_at < :until
    AND {chosen}
ORDER BY titles.folded, titles.session LIMIT :limit

-- name: sessions_through_activity
SELECT {shown} FROM {picked}
WHERE +owner = :owner AND deleted_at IS NULL AND (active_at, key) < (:at, :key) AND active_at >= :since
    AND {chosen}
ORDER BY active_at DESC, key DESC LIMIT :limit

-- name: sessions_through_creation
SELECT {shown} FROM {picked}
WHERE +owner = :owner AND deleted_at IS NULL AND (created_at, key) < (:at, :key) AND created_at >= :since
    AND {chosen}
ORDER BY created_at DESC, key DESC LIMIT :limit

-- name: sessions_through_title
SELECT {shown} FROM {picked}
CROSS JOIN titles ON titles.session = sessions.key
WHERE +sessions.owner = :owner AND deleted_at IS NULL
    AND (titles.folded, key) > (:folded, :key) AND active_at >= :since AND active_at < :until
    AND {chosen}
ORDER BY titles.folded, key LIMIT :limit

-- step: sessions_of_parent
SELECT {few} FROM (
    SELECT key FROM sessions WHERE parent = :of_parent LIMIT :few + 1
) HAVING count(*) <= :few

-- step: sessions_of_pin
SELECT {few} FROM (
    SELECT key FROM sessions INDEXED BY sessions_pinned
    WHERE owner = :owner AND pinned_at IS NOT NULL AND deleted_at IS NULL LIMIT :few + 1
) HAVING count(*) <= :few

-- step: sessions_of_channel
SELECT {few} FROM (
    SELECT key FROM sessions INDEXED BY sessions_channel
    WHERE owner = :owner AND channel = :of_channel AND deleted_at IS NULL LIMIT :few + 1
) HAVING count(*) <= :few

-- step: sessions_of_model
SELECT {few} FROM (
    SELECT key FROM sessions INDEXED BY sessions_model
    WHERE owner = :owner AND model = :of_model AND deleted_at IS NULL LIMIT :few + 1
) HAVING count(*) <= :few

-- step: sessions_of_status
SELECT {few} FROM (
    SELECT key FROM sessions INDEXED BY sessions_status
    WHERE owner = :owner AND status = :of_status AND status <> 'active' AND deleted_at IS NULL LIMIT :few + 1
) HAVING count(*) <= :few

-- step: sessions_of_archive
SELECT {few} FROM (
    SELECT key FROM sessions INDEXED BY sessions_archived
    WHERE owner = :owner AND archived_at IS NOT NULL AND deleted_at IS NULL LIMIT :few + 1
) HAVING count(*) <= :few

-- step: sessions_of_untitled
SELECT {few} FROM (
    SELECT key FROM sessions INDEXED BY sessions_untitled
    WHERE owner = :owner AND title IS NULL AND deleted_at IS NULL LIMIT :few + 1
) HAVING count(*) <= :few

-- name: title_set
INSERT INTO titles (session, owner, folded) VALUES (:session, :owner, :folded)
ON CONFLICT (session) DO UPDATE SET folded = excluded.folded

-- name: title_clear
DELETE FROM titles WHERE session = :session

-- name: sessions_by_prefix
SELECT id, title FROM sessions
WHERE owner = :owner AND deleted_at IS NULL AND id >= :prefix AND id < :after
ORDER BY id LIMIT :limit

-- name: sessions_by_title
SELECT s.id, s.title FROM titles AS t INDEXED BY titles_folded CROSS JOIN sessions AS s ON s.key = t.session
WHERE t.owner = :owner AND t.folded IN (:folded, lower(:title)) AND s.title = :title AND s.deleted_at IS NULL
ORDER BY s.active_at DESC LIMIT :limit

-- name: sessions_titled_alike
SELECT s.id, s.title FROM titles AS t INDEXED BY titles_folded CROSS JOIN sessions AS s ON s.key = t.session
WHERE t.owner = :owner AND t.folded = :folded AND s.deleted_at IS NULL
ORDER BY s.active_at DESC LIMIT :limit

-- name: sessions_of_tree
SELECT key, id, head, deleted_at FROM sessions WHERE tree = :tree ORDER BY key

-- name: sessions_revisions
SELECT key, id, revision FROM sessions WHERE owner = :owner

-- name: session_revisions
SELECT key, id, revision FROM sessions WHERE owner = :owner AND id = :id AND deleted_at IS NULL
UNION ALL
SELECT key, id, revision FROM sessions WHERE owner = :owner AND id = :id AND deleted_at IS NOT NULL

-- name: session_insert
INSERT INTO sessions (
    owner, id, tree, parent, relation, created_at, updated_at, active_at, last_message_at, pinned_at, archived_at,
    status, channel, channel_id, external_id, title, task, provider, provider_config, model, working_dir,
    system_prompt, color, metadata, message_count, token_count, input_tokens, output_tokens
) VALUES (
    :owner, :id, :tree, :parent, :relation, :now, :now, max(:now, coalesce((
        SELECT 1 + o.active_at FROM sessions AS o INDEXED BY sessions_active
        WHERE o.owner = :owner AND o.deleted_at IS NULL ORDER BY o.active_at DESC LIMIT 1
    ), 0)), :last_message_at, :pinned_at, :archived_at,
    :status, :channel, :channel_id, :external_id, :title, :task, :provider, :provider_config, :model, :working_dir,
    :system_prompt, :color, :metadata, :message_count, :token_count, :input_tokens, :output_tokens
)
RETURNING key

-- name: session_head
UPDATE sessions SET head = :head, branch = :branch, last = :last WHERE key = :session

-- name: session_stand
UPDATE sessions
SET head = :head, branch = (SELECT b.number FROM branches AS b WHERE b.key = :head),
    last = (SELECT b.last FROM branches AS b WHERE b.key = :head), revision = revision + 1, message_count = :message_count, token_count = :token_count,
    input_tokens = :input_tokens, output_tokens = :output_tokens, last_message_at = :last_message_at,
    updated_at = max(updated_at, :now)
WHERE key = :session

-- name: session_advance
{standing}

-- name: session_append
{standing}

-- name: session_save
{standing} AND open_turns = 0

-- then: session_advance
UPDATE sessions
SET last = ?, revision = ?, message_count = ?, token_count = ?, input_tokens = ?, output_tokens = ?, updated_at = ?,
    last_message_at = ?
WHERE key = ?

-- or then: session_advance
UPDATE sessions
SET active_at = ?, last = ?, revision = ?, message_count = ?, token_count = ?, input_tokens = ?, output_tokens = ?,
    updated_at = ?, last_message_at = ?
WHERE key = ?

-- name: sessions_held
SELECT id FROM sessions WHERE owner = :owner AND deleted_at IS NULL AND open_turns > 0

-- name: sessions_running
SELECT id FROM sessions INDEXED BY sessions_active
WHERE owner = :owner AND deleted_at IS NULL AND active_at >= :since AND open_turns > 0

-- name: session_opens_turn
UPDATE sessions SET open_turns = open_turns + :change WHERE key = :session

-- name: session_activate
SELECT max(s.active_at, :now, 1 + (
    SELECT o.active_at FROM sessions AS o INDEXED BY sessions_active
    WHERE o.owner = :owner AND o.deleted_at IS NULL ORDER BY o.active_at DESC LIMIT 1
))
FROM sessions AS s WHERE s.key = :session

-- then: session_activate
UPDATE sessions SET active_at = ? WHERE key = ?

-- name: session_stir
UPDATE sessions
SET revision = revision + 1,
    message_count = message_count + CASE WHEN head = :branch THEN :messages ELSE 0 END,
    token_count = token_count + CASE WHEN head = :branch THEN :tokens ELSE 0 END,
    input_tokens = input_tokens + CASE WHEN head = :branch THEN :input_tokens ELSE 0 END,
    output_tokens = output_tokens + CASE WHEN head = :branch THEN :output_tokens ELSE 0 END,
    last = last + CASE WHEN head = :branch THEN :messages ELSE 0 END,
    updated_at = max(updated_at, :now),
    last_message_at = CASE WHEN :messages > 0 AND head = :branch
        THEN max(coalesce(last_message_at, 0), :now) ELSE last_message_at END
WHERE key = :session AND deleted_at IS NULL
RETURNING key, head, last - :messages, revision, message_count, token_count, input_tokens, output_tokens, updated_at,
    active_at, last_message_at

-- name: session_change
UPDATE sessions
SET revision = revision + 1, message_count = message_count + :messages, token_count = token_count + :tokens,
    input_tokens = input_tokens + :input_tokens, output_tokens = output_tokens + :output_tokens,
    updated_at = max(updated_at, :now)
WHERE key = :session

-- name: session_update
UPDATE sessions
SET revision = revision + 1, updated_at = max(updated_at, :now),
    external_id = CASE WHEN instr(:names, ',external_id,') THEN :external_id ELSE external_id END,
    title = CASE WHEN instr(:names, ',title,') THEN :title ELSE title END,
    title_changed = CASE WHEN instr(:names, ',title,') THEN 1 ELSE title_changed END,
    task = CASE WHEN instr(:names, ',task,') THEN :task ELSE task END,
    status = CASE WHEN instr(:names, ',status,') THEN :status ELSE status END,
    provider = CASE WHEN instr(:names, ',provider,') THEN :provider ELSE provider END,
    provider_config = CASE WHEN instr(:names, ',provider_config,') THEN :provider_config ELSE provider_config END,
    model = CASE WHEN instr(:names, ',model,') THEN :model ELSE model END,
    working_dir = CASE WHEN instr(:names, ',working_dir,') THEN :working_dir ELSE working_dir END,
    system_prompt = CASE WHEN instr(:names, ',system_prompt,') THEN :system_prompt ELSE system_prompt END,
    color = CASE WHEN instr(:names, ',color,') THEN :color ELSE color END,
    channel = CASE WHEN instr(:names, ',channel,') THEN :channel ELSE channel END,
    channel_id = CASE WHEN instr(:names, ',channel_id,') THEN :channel_id ELSE channel_id END,
    metadata = CASE WHEN instr(:names, ',metadata,') THEN :metadata ELSE metadata END,
    pinned_at = CASE WHEN instr(:names, ',pinned_at,') THEN :pinned_at ELSE pinned_at END,
    archived_at = CASE WHEN instr(:names, ',archived_at,') THEN :archived_at ELSE archived_at END
WHERE owner = :owner AND id = :id AND deleted_at IS NULL AND (:expected IS NULL OR revision = :expected)
RETURNING {session}

-- name: session_trash
UPDATE sessions SET deleted_at = :now, revision = revision + 1, updated_at = max(updated_at, :now)
WHERE owner = :owner AND id = :id AND deleted_at IS NULL
RETURNING key

-- name: session_restore
UPDATE sessions SET deleted_at = NULL, revision = revision + 1, updated_at = max(updated_at, :now),
    active_at = active_at + (active_at IS (
        SELECT o.active_at FROM sessions AS o INDEXED BY sessions_active
        WHERE o.owner = :owner AND o.deleted_at IS NULL ORDER BY o.active_at DESC LIMIT 1
    ))
WHERE key = :session
RETURNING {session}

-- name: session_delete
DELETE FROM sessions WHERE key = :session

-- name: setting_get
SELECT value FROM settings WHERE owner = :owner AND key = :key

-- name: setting_set
INSERT INTO settings (owner, key, value, updated_at) VALUES (:owner, :key, :value, :now)
ON CONFLICT (owner, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at

-- name: setting_delete
DELETE FROM settings WHERE owner = :owner AND key = :key

-- name: setting_touch
UPDATE settings SET updated_at = :now WHERE owner = :owner AND key = :key
RETURNING key

-- name: settings_between
SELECT key, value, updated_at FROM settings WHERE owner = :owner AND key >= :low AND key < :high ORDER BY key
