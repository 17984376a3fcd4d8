-- INDEXED BY and CROSS JOIN fix the plan, and + keeps a condition from choosing an index: the file has no
-- statistics for the planner (see optimize_file() in engine/sqlite/maintenance.py).

-- shared: key_array
-- The keys of the selected sessions as a JSON array.
json_group_array(key) AS keys

-- shared: listed_sessions
-- The sessions with the keys in a JSON array; k is read first, so that each session is one lookup by its key.
(SELECT value AS session_key FROM json_each(:keys)) AS k CROSS JOIN sessions ON sessions.key = k.session_key

-- shared: session_row
-- A session with the keys that operations need.
sessions.key AS session, tree, head, open_turns, {session_columns}

-- shared: list_row
-- A session as a list shows it, with its key for the cursor.
sessions.key AS session, {session_columns}

-- shared: session_columns
-- The fields of a session. Most sessions have none of the rare ones, so these are one JSON array, or NULL. Delegates
-- are counted only if any session of the file has a parent.
id, created_at, updated_at, active_at, last_message_at, channel, channel_id, title, status, model, branch, revision,
message_count, token_count, input_tokens, output_tokens,
CASE WHEN (SELECT 1 FROM sessions AS a INDEXED BY sessions_parent WHERE a.parent IS NOT NULL LIMIT 1)
THEN (SELECT count(*) FROM sessions AS d
    WHERE d.parent = sessions.key AND d.relation = 'delegate' AND d.deleted_at IS NULL)
ELSE 0 END AS delegate_count,
CASE WHEN data_schema_version <> 1 OR coalesce(relation, {rare_columns}) IS NOT NULL
THEN json_array(
    data_schema_version, (SELECT p.id FROM sessions AS p WHERE p.key = sessions.parent), relation, {rare_columns}
) END AS rare

-- shared: rare_columns
-- The columns that most sessions do not have, in the order of the fields of SessionInfo.
external_id, task, provider, provider_config, working_dir, system_prompt, color, pinned_at, archived_at, deleted_at, labels,
metadata

-- shared: newest_activity
-- The activity time of the session at the top of the list.
SELECT o.active_at FROM sessions AS o INDEXED BY sessions_active
WHERE o.owner = :owner AND o.deleted_at IS NULL ORDER BY o.active_at DESC LIMIT 1

-- shared: field_columns
-- The columns of the fields that a caller sets.
status, channel, channel_id, external_id, title, task, provider, provider_config, model, working_dir, system_prompt, color,
labels, metadata, pinned_at, archived_at

-- shared: field_values
-- The values of the fields that a caller sets.
:status, :channel, :channel_id, :external_id, :title, :task, :provider, :provider_config, :model, :working_dir,
:system_prompt, :color, :labels, :metadata, :pinned_at, :archived_at

-- shared: active_within
-- Conditions of a page by activity: before the upper bound, and not before a time.
(active_at, key) < ({upper_bound}) AND active_at >= coalesce(:since, 0)

-- shared: created_within
-- Conditions of a page by creation.
(created_at, key) < ({upper_bound}) AND created_at >= coalesce(:since, 0)

-- shared: active_within_reversed
-- Conditions of a page by activity, oldest first: after the lower bound, and before a time.
(active_at, key) > ({lower_bound}) AND active_at < coalesce(:until, 9223372036854775807)

-- shared: created_within_reversed
-- Conditions of a page by creation, oldest first.
(created_at, key) > ({lower_bound}) AND created_at < coalesce(:until, 9223372036854775807)

-- shared: title_within_reversed
-- Condition of a page from Z to A: the title is before that of the cursor. A BLOB is greater than any text.
(titles.folded, titles.session) < (coalesce(:folded, x''), coalesce(:key, 9223372036854775807))

-- shared: active_between
-- Condition: the last activity is between two times. Not OR: NULL would not filter, but the planner could use no index.
active_at >= coalesce(:since, 0) AND active_at < coalesce(:until, 9223372036854775807)

-- shared: upper_bound
-- The exclusive upper bound of a page: the time and the key of its cursor, if it has one.
coalesce(:at, 9223372036854775807), coalesce(:key, 9223372036854775807)

-- shared: lower_bound
-- The exclusive lower bound of a page, oldest first.
coalesce(:at, -1), coalesce(:key, -1)

-- shared: list_filters
-- Conditions of a list; a parameter that is NULL does not filter. SQLite ends a name in a path at NUL, so U+FFFF replaces it
-- in metadata.
(:archived IS NULL OR (archived_at IS NOT NULL) = :archived)
AND (:pinned IS NULL OR (pinned_at IS NOT NULL) = :pinned)
AND (:titled IS NULL OR (title IS NOT NULL) = :titled)
AND (:channel IS NULL OR channel = :channel)
AND (:model IS NULL OR model = :model)
AND (:status IS NULL OR status = :status)
AND (:parent IS NULL OR parent = :parent)
AND (:delegates IS NULL OR (relation IS 'delegate') = :delegates)
AND (:relation IS NULL OR relation = :relation)
AND (:external_id IS NULL OR external_id = :external_id)
AND (:id_prefix IS NULL OR id >= :id_prefix AND id <= :id_limit)
AND (:open_turn IS NULL OR (open_turns > 0) = :open_turn)
AND (:labels IS NULL OR NOT EXISTS (
    SELECT 1 FROM json_each(:labels) AS l WHERE l.value NOT IN (SELECT h.value FROM json_each(sessions.labels) AS h)
))
AND (:metadata IS NULL OR NOT EXISTS (
    SELECT 1 FROM (SELECT replace(value, '\u0000', '\uFFFF0000') AS value FROM json_each(:metadata)) AS f
    WHERE coalesce(replace(metadata, '\u0000', '\uFFFF0000') -> ('$.' || (f.value -> 0)), '') NOT IN (f.value ->> 1, f.value ->> 2)
))
AND (:shown_keys IS NULL OR sessions.key NOT IN (SELECT j.value FROM json_each(:shown_keys) AS j))
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
-- Return a session that is not in the trash, by its id.
SELECT {session_row} FROM sessions WHERE owner = :owner AND id = :id AND deleted_at IS NULL

-- name: session_hold
-- Return the key of a session that is not in the trash. No other process can erase it while this transaction writes.
SELECT key AS session FROM sessions WHERE owner = :owner AND id = :id AND deleted_at IS NULL

-- name: session_by_key
-- Return a session by its key, also if it is in the trash.
SELECT {session_row} FROM sessions WHERE key = :session

-- name: session_in_trash
-- Of the sessions in the trash with an id, return the one that was deleted last.
SELECT {session_row} FROM sessions WHERE owner = :owner AND id = :id AND deleted_at IS NOT NULL
ORDER BY deleted_at DESC, key DESC LIMIT 1

-- name: sessions_by_activity
-- Return a page of sessions, most recently active first.
SELECT {list_row} FROM sessions INDEXED BY sessions_active
WHERE owner = :owner AND deleted_at IS NULL AND {active_within}
    AND {list_filters}
ORDER BY active_at DESC, key DESC LIMIT :limit

-- name: sessions_default_list
-- Return a page of the list without filters, most recently active first.
SELECT {list_row} FROM sessions INDEXED BY sessions_active
WHERE owner = :owner AND deleted_at IS NULL AND {active_within}
    AND archived_at IS NULL AND relation IS NOT 'delegate'
ORDER BY active_at DESC, key DESC LIMIT :limit

-- name: sessions_by_activity_reversed
-- Return a page of sessions, least recently active first.
SELECT {list_row} FROM sessions INDEXED BY sessions_active
WHERE owner = :owner AND deleted_at IS NULL AND {active_within_reversed}
    AND {list_filters}
ORDER BY active_at, key LIMIT :limit

-- name: sessions_by_creation
-- Return a page of sessions, newest first.
SELECT {list_row} FROM sessions INDEXED BY sessions_created
WHERE owner = :owner AND deleted_at IS NULL AND {created_within}
    AND {list_filters}
ORDER BY created_at DESC, key DESC LIMIT :limit

-- name: sessions_by_creation_reversed
-- Return a page of sessions, oldest first.
SELECT {list_row} FROM sessions INDEXED BY sessions_created
WHERE owner = :owner AND deleted_at IS NULL AND {created_within_reversed}
    AND {list_filters}
ORDER BY created_at, key LIMIT :limit

-- name: sessions_by_deletion
-- Return a page of the trash, last deleted first.
SELECT {list_row} FROM sessions
WHERE owner = :owner AND deleted_at IS NOT NULL AND (deleted_at, key) < ({upper_bound}) AND deleted_at >= coalesce(:since, 0)
    AND {list_filters}
ORDER BY deleted_at DESC, key DESC LIMIT :limit

-- name: sessions_by_deletion_reversed
-- Return a page of the trash, first deleted first.
SELECT {list_row} FROM sessions
WHERE owner = :owner AND deleted_at IS NOT NULL AND (deleted_at, key) > ({lower_bound})
    AND deleted_at < coalesce(:until, 9223372036854775807)
    AND {list_filters}
ORDER BY deleted_at, key LIMIT :limit

-- name: sessions_by_folded_title
-- Return a page of sessions in the order of their titles.
SELECT {list_row} FROM titles CROSS JOIN sessions ON sessions.key = titles.session
WHERE titles.owner = :owner AND (titles.folded, titles.session) > (coalesce(:folded, ''), coalesce(:key, 0)) AND deleted_at IS NULL
    AND {active_between}
    AND {list_filters}
ORDER BY titles.folded, titles.session LIMIT :limit

-- name: sessions_by_folded_title_reversed
-- Return a page of sessions in the reverse order of their titles.
SELECT {list_row} FROM titles CROSS JOIN sessions ON sessions.key = titles.session
WHERE titles.owner = :owner AND {title_within_reversed} AND deleted_at IS NULL
    AND {active_between}
    AND {list_filters}
ORDER BY titles.folded DESC, titles.session DESC LIMIT :limit

-- name: sessions_through_activity
-- Return a filtered page, most recently active first, through the index of a filter.
SELECT {list_row} FROM {listed_sessions}
WHERE +owner = :owner AND deleted_at IS NULL AND {active_within}
    AND {list_filters}
ORDER BY active_at DESC, key DESC LIMIT :limit

-- name: sessions_through_activity_reversed
-- Return a filtered page, least recently active first, through the index of a filter.
SELECT {list_row} FROM {listed_sessions}
WHERE +owner = :owner AND deleted_at IS NULL AND {active_within_reversed}
    AND {list_filters}
ORDER BY active_at, key LIMIT :limit

-- name: sessions_through_creation
-- Return a filtered page, newest first, through the index of a filter.
SELECT {list_row} FROM {listed_sessions}
WHERE +owner = :owner AND deleted_at IS NULL AND {created_within}
    AND {list_filters}
ORDER BY created_at DESC, key DESC LIMIT :limit

-- name: sessions_through_creation_reversed
-- Return a filtered page, oldest first, through the index of a filter.
SELECT {list_row} FROM {listed_sessions}
WHERE +owner = :owner AND deleted_at IS NULL AND {created_within_reversed}
    AND {list_filters}
ORDER BY created_at, key LIMIT :limit

-- name: sessions_through_title
-- Return a filtered page in title order, through the index of a filter.
SELECT {list_row} FROM {listed_sessions}
CROSS JOIN titles ON titles.session = sessions.key
WHERE +sessions.owner = :owner AND deleted_at IS NULL
    AND (titles.folded, key) > (coalesce(:folded, ''), coalesce(:key, 0)) AND {active_between}
    AND {list_filters}
ORDER BY titles.folded, key LIMIT :limit

-- name: sessions_through_title_reversed
-- Return a filtered page in the reverse order of titles, through the index of a filter.
SELECT {list_row} FROM {listed_sessions}
CROSS JOIN titles ON titles.session = sessions.key
WHERE +sessions.owner = :owner AND deleted_at IS NULL
    AND {title_within_reversed} AND {active_between}
    AND {list_filters}
ORDER BY titles.folded DESC, key DESC LIMIT :limit

-- name: sessions_of_parent
-- Return the keys of the sessions whose parent is :value; no row if there are more than may be sorted.
SELECT {key_array} FROM (
    SELECT key FROM sessions WHERE parent = :value LIMIT :sort_limit + 1
) HAVING count(*) <= :sort_limit

-- name: sessions_of_external_id
-- Return the keys of the sessions with an external id; no row if there are more than may be sorted.
SELECT {key_array} FROM (
    SELECT key FROM sessions INDEXED BY sessions_external
    WHERE owner = :owner AND external_id = :value AND deleted_at IS NULL LIMIT :sort_limit + 1
) HAVING count(*) <= :sort_limit

-- name: sessions_of_id_prefix
-- Return the keys of the sessions whose id begins with :value; no row if there are more than may be sorted.
SELECT {key_array} FROM (
    SELECT key FROM sessions INDEXED BY sessions_id
    WHERE owner = :owner AND id >= :value AND id <= :id_limit AND deleted_at IS NULL LIMIT :sort_limit + 1
) HAVING count(*) <= :sort_limit

-- name: labels_sessions
-- Return the keys of the sessions with a label, also in the trash; no row if there are more than may be sorted.
SELECT {key_array} FROM (
    SELECT session AS key FROM session_labels INDEXED BY session_labels_label
    WHERE owner = :owner AND label = :value LIMIT :sort_limit + 1
) HAVING count(*) <= :sort_limit

-- name: sessions_of_pin
-- Return the keys of the sessions that are pinned; no row if there are more than may be sorted.
SELECT {key_array} FROM (
    SELECT key FROM sessions INDEXED BY sessions_pinned
    WHERE owner = :owner AND pinned_at IS NOT NULL AND deleted_at IS NULL LIMIT :sort_limit + 1
) HAVING count(*) <= :sort_limit

-- name: sessions_of_channel
-- Return the keys of the sessions of a channel; no row if there are more than may be sorted.
SELECT {key_array} FROM (
    SELECT key FROM sessions INDEXED BY sessions_channel
    WHERE owner = :owner AND channel = :value AND deleted_at IS NULL LIMIT :sort_limit + 1
) HAVING count(*) <= :sort_limit

-- name: sessions_of_model
-- Return the keys of the sessions of a model; no row if there are more than may be sorted.
SELECT {key_array} FROM (
    SELECT key FROM sessions INDEXED BY sessions_model
    WHERE owner = :owner AND model = :value AND deleted_at IS NULL LIMIT :sort_limit + 1
) HAVING count(*) <= :sort_limit

-- name: sessions_of_status
-- Return the keys of the sessions with a status other than active; no row if there are more than may be sorted.
SELECT {key_array} FROM (
    SELECT key FROM sessions INDEXED BY sessions_status
    WHERE owner = :owner AND status = :value AND status <> 'active' AND deleted_at IS NULL LIMIT :sort_limit + 1
) HAVING count(*) <= :sort_limit

-- name: sessions_of_archive
-- Return the keys of the sessions that are archived; no row if there are more than may be sorted.
SELECT {key_array} FROM (
    SELECT key FROM sessions INDEXED BY sessions_archived
    WHERE owner = :owner AND archived_at IS NOT NULL AND deleted_at IS NULL LIMIT :sort_limit + 1
) HAVING count(*) <= :sort_limit

-- name: sessions_of_untitled
-- Return the keys of the sessions without a title; no row if there are more than may be sorted.
SELECT {key_array} FROM (
    SELECT key FROM sessions INDEXED BY sessions_untitled
    WHERE owner = :owner AND title IS NULL AND deleted_at IS NULL LIMIT :sort_limit + 1
) HAVING count(*) <= :sort_limit

-- name: title_set
-- Store the sort key of a title.
INSERT INTO titles (session, owner, folded) SELECT key, owner, :folded FROM sessions WHERE key = :session
ON CONFLICT (session) DO UPDATE SET folded = excluded.folded

-- name: title_clear
-- Delete the sort key of a title.
DELETE FROM titles WHERE session = :session

-- name: labels_insert
-- Add the rows of labels, a JSON array, that a session lacks.
INSERT INTO session_labels (session, label, owner)
SELECT s.key, l.value, s.owner FROM sessions AS s CROSS JOIN json_each(:labels) AS l WHERE s.key = :session
ON CONFLICT (session, label) DO NOTHING

-- name: labels_delete
-- Delete the rows of a session's labels, except those in a JSON array.
DELETE FROM session_labels WHERE session = :session AND label NOT IN (SELECT l.value FROM json_each(:labels) AS l)

-- name: sessions_by_prefix
-- Return sessions whose id begins with a text.
SELECT id, title FROM sessions
WHERE owner = :owner AND deleted_at IS NULL AND id >= :prefix AND id <= :last
ORDER BY id LIMIT :limit

-- name: sessions_by_external_id
-- Return sessions with an external id.
SELECT id, title FROM sessions INDEXED BY sessions_external
WHERE owner = :owner AND external_id = :external_id AND deleted_at IS NULL
ORDER BY key LIMIT :limit

-- name: sessions_by_title
-- Return sessions with exactly this title.
SELECT s.id AS id, s.title AS title FROM titles AS t INDEXED BY titles_folded CROSS JOIN sessions AS s ON s.key = t.session
WHERE t.owner = :owner AND t.folded IN (:folded, lower(:title)) AND s.title = :title AND s.deleted_at IS NULL
ORDER BY s.active_at DESC LIMIT :limit

-- name: sessions_by_similar_title
-- Return sessions whose title differs at most in case and accents.
SELECT s.id AS id, s.title AS title FROM titles AS t INDEXED BY titles_folded CROSS JOIN sessions AS s ON s.key = t.session
WHERE t.owner = :owner AND t.folded = :folded AND s.deleted_at IS NULL
ORDER BY s.active_at DESC LIMIT :limit

-- name: sessions_of_tree
-- Return the sessions of a tree with their head branches.
SELECT key AS session, id, head, deleted_at FROM sessions WHERE tree = :tree ORDER BY key

-- name: sessions_outline
-- Return the sessions of a tree with all their columns, also those in the trash.
SELECT {session_row} FROM sessions WHERE tree = :tree ORDER BY key

-- name: sessions_revisions
-- Return the revisions of all sessions of an owner.
SELECT key AS session, id, revision FROM sessions WHERE owner = :owner

-- name: session_revisions
-- Return the revisions of the sessions with an id, also in the trash.
SELECT key AS session, id, revision FROM sessions WHERE owner = :owner AND id = :id AND deleted_at IS NULL
UNION ALL
SELECT key AS session, id, revision FROM sessions WHERE owner = :owner AND id = :id AND deleted_at IS NOT NULL

-- name: session_insert
-- Insert a session as the most recently active one of its owner.
INSERT INTO sessions (
    owner, id, tree, parent, relation, created_at, updated_at, active_at, last_message_at, message_count, token_count,
    input_tokens, output_tokens, {field_columns}
) VALUES (
    :owner, :id, :tree, :parent, :relation, :now, :now, max(:now, coalesce(1 + ({newest_activity}), 0)), :last_message_at,
    :message_count, :token_count, :input_tokens, :output_tokens, {field_values}
)
RETURNING key AS session

-- name: session_import
-- Insert a session with all its columns except the head branch and the parent, from an import or a copy.
INSERT INTO sessions (
    owner, id, tree, relation, revision, created_at, updated_at, active_at, last_message_at, deleted_at, open_turns,
    message_count, token_count, input_tokens, output_tokens, data_schema_version, {field_columns}
) VALUES (
    :owner, :id, :tree, :relation, :revision, :created_at, :updated_at, :active_at, :last_message_at, :deleted_at, :open_turns,
    :message_count, :token_count, :input_tokens, :output_tokens, :data_schema_version, {field_values}
)
RETURNING key AS session

-- name: session_head
-- Set the head branch of a new session.
UPDATE sessions SET head = :head, branch = (SELECT number FROM branches WHERE key = :head), last = :last
WHERE key = :session

-- name: session_switch
-- Make another branch the head of a session. :step is 0 if a later statement of the operation raises the revision.
UPDATE sessions
SET head = :head, branch = (SELECT b.number FROM branches AS b WHERE b.key = :head),
    last = (SELECT b.last FROM branches AS b WHERE b.key = :head), revision = revision + :step,
    message_count = :message_count, token_count = :token_count,
    input_tokens = :input_tokens, output_tokens = :output_tokens, last_message_at = :last_message_at,
    updated_at = max(updated_at, :now)
WHERE key = :session

-- name: session_advance
-- Count new messages, reserve their positions and raise the revision. fast_paths.py does the same in two statements.
UPDATE sessions
SET last = last + :messages, revision = revision + 1, message_count = message_count + :messages,
    token_count = token_count + :tokens, input_tokens = input_tokens + :input_tokens,
    output_tokens = output_tokens + :output_tokens, updated_at = max(updated_at, :now),
    last_message_at = max(coalesce(last_message_at, :now), :now),
    active_at = CASE WHEN active_at < :now - :activity_resolution OR key <> (
        SELECT o.key FROM sessions AS o INDEXED BY sessions_active
        WHERE o.owner = :owner AND o.deleted_at IS NULL ORDER BY o.active_at DESC, o.key DESC LIMIT 1
    ) THEN max(:now, 1 + ({newest_activity})) ELSE active_at END
WHERE owner = :owner AND id = :id AND deleted_at IS NULL AND (:expected IS NULL OR revision = :expected)
RETURNING key AS session, head, last - :messages AS last, branch, open_turns, revision, message_count, token_count,
    input_tokens, output_tokens, updated_at, active_at, last_message_at

-- name: session_append_state
-- Return the columns of a session row that an append changes, the activity time of the session at the top of the list,
-- and whether that is another session.
SELECT key AS session, head, last, branch, open_turns, revision, message_count, token_count, input_tokens, output_tokens,
    updated_at, active_at, last_message_at, (
        SELECT o.active_at << 1 | (o.key <> sessions.key) FROM sessions AS o INDEXED BY sessions_active
        WHERE o.owner = :owner AND o.deleted_at IS NULL ORDER BY o.active_at DESC, o.key DESC LIMIT 1
    ) AS order_state
FROM sessions WHERE owner = :owner AND id = :id AND deleted_at IS NULL

-- name: session_write_counts
-- Write the counts of an append; the session stays where it is in the list.
UPDATE sessions
SET last = ?, revision = ?, message_count = ?, token_count = ?, input_tokens = ?, output_tokens = ?, updated_at = ?,
    last_message_at = ?
WHERE key = ?

-- name: session_write_activity
-- Write the counts and the activity time, which changes the index of the list.
UPDATE sessions
SET active_at = ?, last = ?, revision = ?, message_count = ?, token_count = ?, input_tokens = ?, output_tokens = ?,
    updated_at = ?, last_message_at = ?
WHERE key = ?

-- name: sessions_with_open_turns
-- Return the sessions with an open turn.
SELECT id FROM sessions WHERE owner = :owner AND deleted_at IS NULL AND open_turns > 0

-- name: session_change_open_turns
-- Change the number of open turns of a session.
UPDATE sessions SET open_turns = open_turns + :change WHERE key = :session

-- name: session_import_times
-- Set the times of an imported session to those of its tool; a time that is NULL stays.
UPDATE sessions
SET created_at = coalesce(:created_at, created_at), active_at = coalesce(:active_at, active_at),
    last_message_at = coalesce(:active_at, last_message_at)
WHERE key = :session

-- name: session_activate
-- Make a session the most recently active one of its owner.
UPDATE sessions SET active_at = max(active_at, :now, 1 + ({newest_activity})) WHERE key = :session
RETURNING active_at

-- name: session_touch
-- Raise the revision of a session, and count new messages if the branch is its head.
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
RETURNING key AS session, head, last - :messages AS last, revision, message_count, token_count, input_tokens, output_tokens, updated_at,
    active_at, last_message_at

-- name: session_change
-- Raise the revision and change the counts of a session.
UPDATE sessions
SET revision = revision + 1, message_count = message_count + :messages, token_count = token_count + :tokens,
    input_tokens = input_tokens + :input_tokens, output_tokens = output_tokens + :output_tokens,
    updated_at = max(updated_at, :now)
WHERE key = :session

-- name: session_update
-- Change the named columns of a session. :step is 0 if a later statement of the operation raises the revision.
UPDATE sessions
SET revision = revision + :step, updated_at = max(updated_at, :now),
    external_id = CASE WHEN instr(:changed_columns, ',external_id,') THEN :external_id ELSE external_id END,
    title = CASE WHEN instr(:changed_columns, ',title,') THEN :title ELSE title END,
    title_changed = CASE WHEN instr(:changed_columns, ',title,') THEN 1 ELSE title_changed END,
    task = CASE WHEN instr(:changed_columns, ',task,') THEN :task ELSE task END,
    status = CASE WHEN instr(:changed_columns, ',status,') THEN :status ELSE status END,
    provider = CASE WHEN instr(:changed_columns, ',provider,') THEN :provider ELSE provider END,
    provider_config = CASE WHEN instr(:changed_columns, ',provider_config,') THEN :provider_config ELSE provider_config END,
    model = CASE WHEN instr(:changed_columns, ',model,') THEN :model ELSE model END,
    working_dir = CASE WHEN instr(:changed_columns, ',working_dir,') THEN :working_dir ELSE working_dir END,
    system_prompt = CASE WHEN instr(:changed_columns, ',system_prompt,') THEN :system_prompt ELSE system_prompt END,
    color = CASE WHEN instr(:changed_columns, ',color,') THEN :color ELSE color END,
    channel = CASE WHEN instr(:changed_columns, ',channel,') THEN :channel ELSE channel END,
    channel_id = CASE WHEN instr(:changed_columns, ',channel_id,') THEN :channel_id ELSE channel_id END,
    labels = CASE WHEN instr(:changed_columns, ',labels,') THEN :labels ELSE labels END,
    metadata = CASE WHEN instr(:changed_columns, ',metadata,') THEN :metadata ELSE metadata END,
    pinned_at = CASE WHEN instr(:changed_columns, ',pinned_at,') THEN :pinned_at ELSE pinned_at END,
    archived_at = CASE WHEN instr(:changed_columns, ',archived_at,') THEN :archived_at ELSE archived_at END
WHERE owner = :owner AND id = :id AND deleted_at IS NULL AND (:expected IS NULL OR revision = :expected)
RETURNING {session_row}

-- name: session_parent
-- Return the key of the parent of a session.
SELECT parent FROM sessions WHERE key = :session

-- name: session_set_parent
-- Set or clear the parent of a session and the relation to it.
UPDATE sessions SET parent = :parent, relation = :relation WHERE key = :session

-- name: session_set_relation
-- Set or clear the relation of a session to its parent.
UPDATE sessions SET relation = :relation WHERE key = :session

-- name: session_trash
-- Move a session to the trash.
UPDATE sessions SET deleted_at = :now, revision = revision + 1, updated_at = max(updated_at, :now)
WHERE owner = :owner AND id = :id AND deleted_at IS NULL
RETURNING key

-- name: session_restore
-- Move a session out of the trash.
UPDATE sessions SET deleted_at = NULL, revision = revision + 1, updated_at = max(updated_at, :now),
    active_at = active_at + (active_at IS ({newest_activity}))
WHERE key = :session

-- name: session_delete
-- Delete a session, its idempotency keys, snapshots and labels.
DELETE FROM sessions WHERE key = :session

