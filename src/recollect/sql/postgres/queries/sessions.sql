-- A key that is computed from another row is a SELECT of its own, here and in other files: under row-level security, PostgreSQL
-- 15 does not use an index for a condition on a function of a column, since the function could leak its argument.
--
-- Lists are read in index order by one generic plan for all filters: planning takes as long as reading a page. OFFSET 0 makes
-- the planner look up tool calls and messages per session; a plan made for small tables would read and hash all of them.

-- shared: append_ctes
-- Advance a session and insert the messages of an append after its last position.
WITH advanced_session AS (
    {advance_update}
    WHERE {has_id} AND deleted_at IS NULL AND {revision_matches}
    RETURNING {append_columns}, {session_counts}
), inserted_messages AS (
    INSERT INTO recollect.messages ({message_columns})
    SELECT tree, branch, previous_last + ordinal, NULL, {message_values} FROM advanced_session, {message_rows}
)

-- shared: save_turn_ctes
-- The same for a complete turn, whose row gets the position of its first message. Needs a session without an open turn.
WITH advanced_session AS (
    {advance_update}
    WHERE {has_id} AND deleted_at IS NULL AND open_turns = 0 AND {revision_matches}
    RETURNING {append_columns}, {session_counts}
), inserted_messages AS (
    INSERT INTO recollect.messages ({message_columns})
    SELECT tree, branch, previous_last + ordinal, previous_last + 1, {message_values} FROM advanced_session, {message_rows}
), inserted_turn AS (
    INSERT INTO recollect.turns ({turn_columns}) SELECT tree, branch, previous_last + 1, {turn_values} FROM advanced_session
)

-- shared: calls_insert_cte
-- Insert the tool calls of an append; the client counts their positions from 1.
inserted_calls AS (
    INSERT INTO recollect.tool_calls ({call_columns})
    SELECT tree, branch, previous_last + ordinal, part, branch, previous_last + result, {call_values} FROM advanced_session, {call_rows}
)

-- shared: committed_append_row
-- The row that an append returned, found by the messages that its transaction wrote (xmin).
SELECT (s.tree << 20) | s.number AS session, (s.tree << 20) | m.branch AS head, m.previous_last AS last, m.branch, s.open_turns,
    {session_counts}
FROM recollect.sessions AS s
JOIN LATERAL (
    SELECT n.branch, min(n.position) - 1 AS previous_last, count(*) AS message_total
    FROM recollect.branches AS b
    JOIN recollect.messages AS n ON n.tree = b.tree AND n.branch = b.number
    WHERE b.tree = s.tree AND b.session = s.number AND n.xmin = :transaction::text::xid
    GROUP BY n.branch
) AS m ON m.message_total = :messages::bigint
WHERE {has_id}

-- shared: append_probe
-- A row if an append of the same messages may have written anything: a message with one of their times exists.
SELECT 1 FROM recollect.sessions AS s
WHERE {has_id} AND EXISTS (
    SELECT FROM recollect.branches AS b
    JOIN recollect.messages AS n ON n.tree = b.tree AND n.branch = b.number
    WHERE b.tree = s.tree AND b.session = s.number AND n.created_at = ANY(:rows.6::bigint[])
)

-- shared: advance_update
-- Count new messages in the session row. The activity time, which is indexed, changes only if another session is
-- newer, or :activity_resolution has passed.
UPDATE recollect.sessions
SET revision = revision + 1, message_count = message_count + :messages, token_count = token_count + :tokens,
    input_tokens = input_tokens + :input_tokens, output_tokens = output_tokens + :output_tokens,
    last = last + :messages::int, waiting = true, updated_at = greatest(updated_at, :now::bigint),
    last_message_at = greatest(last_message_at, :now::bigint),
    active_at = CASE WHEN active_at < greatest(:now::bigint - :activity_resolution::bigint, newest.newest_at)
        THEN greatest(:now::bigint, newest.newest_at + 1) ELSE active_at END
FROM (
    SELECT max(o.active_at) AS newest_at FROM recollect.sessions AS o
    WHERE o.owner = :owner AND o.deleted_at IS NULL
) AS newest

-- shared: revision_matches
-- Condition: the caller expects no revision, or the current one.
(:expected::bigint IS NULL OR revision = :expected::bigint)

-- shared: append_columns
-- The keys of an advanced session and the last position before the append.
tree, number, branch, last - :messages::int AS previous_last, open_turns

-- shared: append_row
-- The columns that an append returns, with packed keys.
(tree << 20) | number AS session, (tree << 20) | branch AS head, previous_last AS last, branch, open_turns

-- shared: session_counts
-- The columns of a session that an append changes, as the operation returns them.
revision, message_count, token_count, input_tokens, output_tokens, updated_at, active_at, last_message_at

-- shared: message_columns
-- The columns of an inserted message.
tree, branch, position, turn, role, state, tokens, input_tokens, output_tokens, created_at, completed_at, format, model,
error, metadata, native, blobs, parts

-- shared: message_values
-- The values for message_columns after the turn, from message_rows.
role, state, tokens, tokens_in, tokens_out, created_at, completed_at, format, model, error, metadata, native, blobs, parts

-- shared: message_rows
-- The messages of an append as rows; each column travels as one array, which costs less than a parameter per value.
unnest(
    :rows.1::text[], :rows.2::text[], :rows.3::bigint[], :rows.4::bigint[], :rows.5::bigint[], :rows.6::bigint[],
    :rows.7::bigint[], :rows.8::text[], :rows.9::text[], :rows.10::text[], :rows.11::text[], :rows.12::text[],
    :rows.13::text[], :rows.14::text[]
) WITH ORDINALITY AS r (
    role, state, tokens, tokens_in, tokens_out, created_at, completed_at, format, model, error, metadata, native, blobs, parts, ordinal
)

-- shared: turn_columns
-- The columns of an inserted turn.
tree, branch, position, status, started_at, ended_at, latency_ms, input_tokens, output_tokens, model, error

-- shared: turn_values
-- The values for turn_columns after the position.
:turn.1::text, :turn.2::bigint, :turn.3::bigint, :turn.4::bigint, :turn.5::bigint, :turn.6::bigint, :turn.7::text,
:turn.8::text

-- shared: call_columns
-- The columns of an inserted tool call.
tree, message_branch, message_position, part, branch, result, call_id, tool, status, result_part, created_at, started_at,
completed_at, latency_ms, error_code, error_message

-- shared: call_values
-- The values for call_columns after the result, from call_rows.
call_id, tool, status, result_part, created_at, started_at, completed_at, latency_ms, error_code, error_message

-- shared: call_rows
-- The tool calls of an append as rows, from one array per column.
unnest(
    :calls.2::bigint[], :calls.3::bigint[], :calls.5::text[], :calls.6::text[], :calls.7::text[], :calls.9::bigint[],
    :calls.10::bigint[], :calls.11::bigint[], :calls.12::bigint[], :calls.13::bigint[], :calls.14::bigint[],
    :calls.15::text[], :calls.16::text[]
) AS c (
    ordinal, part, call_id, tool, status, result, result_part, created_at, started_at, completed_at, latency_ms, error_code,
    error_message
)

-- shared: new_tree_cte
-- Insert the tree of a new session, unless the session exists or its parent is missing. The parent is locked, so that it
-- is not erased meanwhile.
locked_parent AS (
    SELECT tree, number FROM recollect.sessions
    WHERE owner = :owner AND id = :parent::text AND deleted_at IS NULL FOR NO KEY UPDATE
), new_tree AS (
    INSERT INTO recollect.trees (owner, sessions, branches) SELECT :owner::text, 1, 1
    WHERE NOT EXISTS (SELECT FROM recollect.sessions WHERE {has_id} AND deleted_at IS NULL)
        AND (:parent::text IS NULL OR EXISTS (SELECT FROM locked_parent))
    RETURNING tree
)

-- shared: session_insert
-- Insert a session into a new tree, with a relation if it has a parent.
INSERT INTO recollect.sessions (
    tree, number, branch, owner, id, parent, relation, created_at, updated_at, active_at, folded, {field_columns}
)
SELECT
    new_tree.tree, 1, 1, :owner::text, :id::text, (p.tree << 20) | p.number,
    CASE WHEN p.tree IS NOT NULL THEN :relation::text END, :now::bigint, :now::bigint, greatest(:now::bigint, {next_activity}),
    :folded::text, {field_values}
FROM new_tree
LEFT JOIN locked_parent AS p ON true
RETURNING sessions.*

-- shared: branch_insert_cte
-- Insert the first branch of a new tree.
inserted_branch AS (
    INSERT INTO recollect.branches (tree, number, session, created_at) SELECT tree, 1, 1, :now::bigint FROM new_tree
)

-- shared: labels_insert_cte
-- Insert the labels of a new session, a JSON array.
inserted_labels AS (
    INSERT INTO recollect.session_labels (tree, session, owner, label)
    SELECT new_session.tree, new_session.number, new_session.owner, l.value
    FROM new_session CROSS JOIN json_array_elements_text(new_session.labels::json) AS l (value)
)

-- shared: next_activity
-- An activity time after that of every other session.
(SELECT 1 + max(o.active_at) FROM recollect.sessions AS o WHERE o.owner = :owner AND o.deleted_at IS NULL)

-- shared: sessions_of_pin
-- The pinned sessions.
FROM recollect.sessions WHERE owner = :owner AND pinned_at IS NOT NULL AND deleted_at IS NULL

-- shared: few_keys
-- The keys of selected sessions as a JSON array; no row if there are more than may be sorted.
SELECT coalesce(json_agg(key), '[]')::text AS keys FROM

-- shared: up_to_sort_limit
-- One session more than may be sorted, which shows that there are too many.
LIMIT :sort_limit::bigint + 1

-- shared: are_few
-- Condition: there are no more sessions than may be sorted.
HAVING count(*) <= :sort_limit::bigint

-- shared: listed_sessions
-- The sessions with the keys in a JSON array.
(
    SELECT s.* FROM json_array_elements_text(:keys::json) AS k (value) CROSS JOIN LATERAL (
        SELECT * FROM recollect.sessions
        WHERE tree = k.value::bigint >> 20 AND number = (k.value::bigint & 1048575)::int OFFSET 0
    ) AS s
) AS sessions

-- shared: session_row
-- A session with the keys that operations need.
(tree << 20) | number AS session, tree, (tree << 20) | branch AS head, open_turns, {session_columns}

-- shared: list_row
-- A session as a list shows it, with its key for the cursor.
(tree << 20) | number AS session, {session_columns}

-- shared: session_columns
-- The fields of a session. Most sessions have none of the rare ones, so these are one JSON array, or NULL.
id, created_at, updated_at, active_at, last_message_at, channel, channel_id, title, status, model, branch, revision,
message_count, token_count, input_tokens, output_tokens, delegates AS delegate_count,
CASE WHEN coalesce(pinned_at, archived_at, deleted_at) IS NOT NULL OR data_schema_version <> 1
    OR coalesce(relation, external_id, task, provider, provider_config, working_dir, system_prompt, color, labels, metadata)
        IS NOT NULL
THEN json_build_array(
    data_schema_version, parent_id, relation, external_id, task, provider, provider_config, working_dir,
    system_prompt, color, pinned_at, archived_at, deleted_at, labels, metadata
) END AS rare

-- shared: field_columns
-- The columns of the fields that a caller sets.
status, channel, channel_id, external_id, title, task, provider, provider_config, model, working_dir, system_prompt, color,
labels, metadata, pinned_at, archived_at

-- shared: field_values
-- The values of the fields that a caller sets.
:status::text, :channel::text, :channel_id::text, :external_id::text, :title::text, :task::text, :provider::text,
:provider_config::text, :model::text, :working_dir::text, :system_prompt::text, :color::text, :labels::text,
:metadata::text,
:pinned_at::bigint, :archived_at::bigint

-- shared: list_filters
-- Conditions of a list; each is removed from the text if its parameter is missing. Tools and roles are looked up on the
-- head branch first, which usually has them.
(:archived::boolean IS NULL OR (archived_at IS NOT NULL) = :archived::boolean)
AND (:pinned::boolean IS NULL OR (pinned_at IS NOT NULL) = :pinned::boolean)
AND (:titled::boolean IS NULL OR (title IS NOT NULL) = :titled::boolean)
AND (:channel::text IS NULL OR channel = :channel::text)
AND (:model::text IS NULL OR model = :model::text)
AND (:status::text IS NULL OR status = :status::text)
AND (:parent::bigint IS NULL OR parent = :parent::bigint)
AND (:delegates::boolean IS NULL OR (relation IS NOT DISTINCT FROM 'delegate') = :delegates::boolean)
AND (:relation::text IS NULL OR relation = :relation::text)
AND (:external_id::text IS NULL OR external_id = :external_id::text)
AND (:id_prefix::text IS NULL OR id >= :id_prefix::text AND id <= :id_limit::text)
AND (:open_turn::boolean IS NULL OR (open_turns > 0) = :open_turn::boolean)
AND (:labels::text IS NULL OR labels::jsonb ?& (SELECT recollect.listed(:labels))::text[])
AND (:metadata::text IS NULL OR NOT EXISTS (
    SELECT 1 FROM json_array_elements(:metadata::text::json) AS f (value)
    WHERE coalesce((recollect.decodable(metadata)::json -> (f.value ->> 0))::text, '')
        NOT IN (recollect.decodable(f.value ->> 1), recollect.decodable(f.value ->> 2)) OFFSET 0
))
AND (:shown_keys::text IS NULL OR ((tree << 20) | number) NOT IN (
    SELECT j.value::bigint FROM json_array_elements_text(:shown_keys::text::json) AS j (value)
))
AND (:tool::text IS NULL OR EXISTS (
    SELECT 1 FROM recollect.tool_calls AS t
    WHERE t.tree = sessions.tree AND t.message_branch = sessions.branch AND t.tool = :tool::text OFFSET 0
) OR EXISTS (
    SELECT 1 FROM {other_branches} CROSS JOIN LATERAL (
        SELECT 1 FROM recollect.tool_calls AS t
        WHERE t.tree = sessions.tree AND t.message_branch = b.number AND t.tool = :tool::text OFFSET 0
    ) AS t
))
AND (:role::text IS NULL OR EXISTS (
    SELECT 1 FROM recollect.messages AS m
    WHERE m.tree = sessions.tree AND m.branch = sessions.branch AND m.role = :role::text AND m.deleted_at IS NULL OFFSET 0
) OR EXISTS (
    SELECT 1 FROM {other_branches} CROSS JOIN LATERAL (
        SELECT 1 FROM recollect.messages AS m
        WHERE m.tree = sessions.tree AND m.branch = b.number AND m.role = :role::text AND m.deleted_at IS NULL OFFSET 0
    ) AS m
))

-- shared: other_branches
-- The branches of a session except its head.
(
    SELECT b.number FROM recollect.branches AS b
    WHERE b.tree = sessions.tree AND b.session = sessions.number AND b.number <> sessions.branch OFFSET 0
) AS b

-- shared: active_after_cursor
-- Conditions of a page by activity: after the cursor and within the bounds, if there are any.
owner = :owner AND deleted_at IS NULL
AND (:at::bigint IS NULL OR
    (active_at, tree, number) < (:at::bigint, :key::bigint >> 20, (:key::bigint & 1048575)::int))
AND (:since::bigint IS NULL OR active_at >= :since::bigint)

-- shared: activity_order
-- The order and the length of a page by activity.
ORDER BY active_at DESC, tree DESC, number DESC LIMIT (SELECT :limit::bigint)

-- shared: created_after_cursor
-- Conditions of a page by creation.
owner = :owner AND deleted_at IS NULL
AND (:at::bigint IS NULL OR
    (created_at, tree, number) < (:at::bigint, :key::bigint >> 20, (:key::bigint & 1048575)::int))
AND (:since::bigint IS NULL OR created_at >= :since::bigint)

-- shared: creation_order
-- The order and the length of a page by creation.
ORDER BY created_at DESC, tree DESC, number DESC LIMIT (SELECT :limit::bigint)

-- shared: active_after_cursor_reversed
-- Conditions of a page by activity, oldest first.
owner = :owner AND deleted_at IS NULL
AND (:at::bigint IS NULL OR
    (active_at, tree, number) > (:at::bigint, :key::bigint >> 20, (:key::bigint & 1048575)::int))
AND (:until::bigint IS NULL OR active_at < :until::bigint)

-- shared: activity_order_reversed
-- The order and the length of a page by activity, oldest first.
ORDER BY active_at, tree, number LIMIT (SELECT :limit::bigint)

-- shared: created_after_cursor_reversed
-- Conditions of a page by creation, oldest first.
owner = :owner AND deleted_at IS NULL
AND (:at::bigint IS NULL OR
    (created_at, tree, number) > (:at::bigint, :key::bigint >> 20, (:key::bigint & 1048575)::int))
AND (:until::bigint IS NULL OR created_at < :until::bigint)

-- shared: creation_order_reversed
-- The order and the length of a page by creation, oldest first.
ORDER BY created_at, tree, number LIMIT (SELECT :limit::bigint)

-- shared: titled_after_cursor_reversed
-- Conditions of a page by title, from Z to A.
owner = :owner AND folded IS NOT NULL AND deleted_at IS NULL
AND (:folded::text IS NULL OR
    (folded, tree, number) < (:folded::text, :key::bigint >> 20, (:key::bigint & 1048575)::int))
AND (:since::bigint IS NULL OR active_at >= :since::bigint) AND (:until::bigint IS NULL OR active_at < :until::bigint)

-- shared: title_order_reversed
-- The order and the length of a page by title, from Z to A.
ORDER BY folded DESC, tree DESC, number DESC LIMIT (SELECT :limit::bigint)

-- shared: titled_after_cursor
-- Conditions of a page by title; folded is the title in the form that lists sort by.
owner = :owner AND folded IS NOT NULL AND deleted_at IS NULL
AND (:folded::text IS NULL OR
    (folded, tree, number) > (:folded::text, :key::bigint >> 20, (:key::bigint & 1048575)::int))
AND (:since::bigint IS NULL OR active_at >= :since::bigint) AND (:until::bigint IS NULL OR active_at < :until::bigint)

-- shared: title_order
-- The order and the length of a page by title.
ORDER BY folded, tree, number LIMIT (SELECT :limit::bigint)

-- shared: is_session
-- Condition: the session has the key :session.
tree = :session::bigint >> 20 AND number = (:session::bigint & 1048575)::int

-- shared: has_id
-- Condition: the session has the id :id and belongs to the owner.
owner = :owner AND id = :id

-- shared: is_head
-- Condition: the branch with the key :branch is the head of the session.
((tree << 20) | branch) = :branch::bigint

-- name: session_get_lock
-- Lock the rows that session_get reads.
SELECT number FROM recollect.sessions WHERE {has_id} AND deleted_at IS NULL FOR NO KEY UPDATE

-- name: session_get
-- Return a session that is not in the trash, by its id.
SELECT {session_row} FROM recollect.sessions WHERE {has_id} AND deleted_at IS NULL

-- name: session_hold
-- Return the key of a session that is not in the trash, and keep others from erasing it until the transaction ends. One statement:
-- if another transaction erases the row meanwhile, and creates the session again, no row is returned.
SELECT (tree << 20) | number AS session FROM recollect.sessions WHERE {has_id} AND deleted_at IS NULL FOR KEY SHARE

-- name: session_create
-- Create a session with its tree and branch; no row if it exists, or if its parent is missing.
WITH {new_tree_cte}, new_session AS (
    {session_insert}
), {branch_insert_cte}, {labels_insert_cte}
SELECT {session_row} FROM new_session AS sessions

-- name: session_create_lookup
-- Return the session that a transaction created.
SELECT {session_row} FROM recollect.sessions
WHERE {has_id} AND deleted_at IS NULL AND (
    xmin = :transaction::text::xid OR EXISTS (
        SELECT FROM recollect.trees AS t WHERE t.tree = sessions.tree AND t.xmin = :transaction::text::xid
    )
)

-- name: session_create_probe
-- Return a row if session_create may have created the session.
SELECT 1 FROM recollect.sessions WHERE {has_id} AND created_at = :now::bigint

-- name: session_by_key_lock
-- Lock the rows that session_by_key reads.
SELECT number FROM recollect.sessions WHERE {is_session} FOR NO KEY UPDATE

-- name: session_by_key
-- Return a session by its key, also if it is in the trash.
SELECT {session_row} FROM recollect.sessions WHERE {is_session}

-- name: session_in_trash_lock
-- Lock the rows that session_in_trash reads.
SELECT number FROM recollect.sessions WHERE {has_id} AND deleted_at IS NOT NULL FOR NO KEY UPDATE

-- name: session_in_trash
-- Of the sessions in the trash with an id, return the one that was deleted last.
SELECT {session_row} FROM recollect.sessions WHERE {has_id} AND deleted_at IS NOT NULL
ORDER BY deleted_at DESC, tree DESC, number DESC LIMIT 1

-- name: settings_walk
-- Set one generic plan that walks an index in the order of a list, without a sort.
SELECT set_config('enable_sort', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)

-- name: sessions_by_activity
-- Return a page of sessions, most recently active first.
SELECT {list_row} FROM recollect.sessions WHERE {active_after_cursor} AND {list_filters} {activity_order}

-- shared: default_list_filter
-- Conditions of the list without filters.
archived_at IS NULL AND relation IS DISTINCT FROM 'delegate'

-- name: sessions_default_list
-- Return a page of the list without filters, most recently active first.
SELECT {list_row} FROM recollect.sessions WHERE {active_after_cursor} AND {default_list_filter} {activity_order}

-- name: sessions_pinned_first
-- Return the first page with pinned sessions first; no row if too many sessions are pinned.
WITH pin_count AS MATERIALIZED (
    SELECT NOT EXISTS (SELECT 1 {sessions_of_pin} OFFSET :sort_limit::bigint) AS are_few
), pinned_sessions AS MATERIALIZED (
    SELECT * FROM (SELECT * {sessions_of_pin} AND (SELECT pin_count.are_few FROM pin_count) OFFSET 0) AS s WHERE {default_list_filter} {activity_order}
)
SELECT {list_row} FROM (
    (SELECT * FROM pinned_sessions)
    UNION ALL
    (
        SELECT * FROM recollect.sessions
        WHERE owner = :owner AND deleted_at IS NULL AND pinned_at IS NULL AND (SELECT pin_count.are_few FROM pin_count) AND {default_list_filter}
        ORDER BY active_at DESC, tree DESC, number DESC LIMIT (SELECT :limit::bigint - count(*) FROM pinned_sessions)
    )
) AS sessions

-- name: sessions_by_activity_reversed
-- Return a page of sessions, least recently active first.
SELECT {list_row} FROM recollect.sessions WHERE {active_after_cursor_reversed} AND {list_filters} {activity_order_reversed}

-- name: sessions_by_creation
-- Return a page of sessions, newest first.
SELECT {list_row} FROM recollect.sessions WHERE {created_after_cursor} AND {list_filters} {creation_order}

-- name: sessions_by_creation_reversed
-- Return a page of sessions, oldest first.
SELECT {list_row} FROM recollect.sessions WHERE {created_after_cursor_reversed} AND {list_filters} {creation_order_reversed}

-- name: sessions_by_deletion
-- Return a page of the trash, last deleted first.
SELECT {list_row} FROM recollect.sessions
WHERE owner = :owner AND deleted_at IS NOT NULL
    AND (:at::bigint IS NULL OR
        (deleted_at, tree, number) < (:at::bigint, :key::bigint >> 20, (:key::bigint & 1048575)::int))
    AND (:since::bigint IS NULL OR deleted_at >= :since::bigint) AND {list_filters}
ORDER BY deleted_at DESC, tree DESC, number DESC LIMIT (SELECT :limit::bigint)

-- name: sessions_by_deletion_reversed
-- Return a page of the trash, first deleted first.
SELECT {list_row} FROM recollect.sessions
WHERE owner = :owner AND deleted_at IS NOT NULL
    AND (:at::bigint IS NULL OR
        (deleted_at, tree, number) > (:at::bigint, :key::bigint >> 20, (:key::bigint & 1048575)::int))
    AND (:until::bigint IS NULL OR deleted_at < :until::bigint) AND {list_filters}
ORDER BY deleted_at, tree, number LIMIT (SELECT :limit::bigint)

-- name: sessions_by_folded_title
-- Return a page of sessions in the order of their titles.
SELECT {list_row} FROM recollect.sessions WHERE {titled_after_cursor} AND {list_filters} {title_order}

-- name: sessions_by_folded_title_reversed
-- Return a page of sessions in the reverse order of their titles.
SELECT {list_row} FROM recollect.sessions WHERE {titled_after_cursor_reversed} AND {list_filters} {title_order_reversed}

-- name: sessions_through_activity
-- Return a filtered page, most recently active first, of the sessions with the keys in a JSON array.
SELECT {list_row} FROM {listed_sessions} WHERE {active_after_cursor} AND {list_filters} {activity_order}

-- name: sessions_through_activity_reversed
-- Return a filtered page, least recently active first, of the sessions with the keys in a JSON array.
SELECT {list_row} FROM {listed_sessions} WHERE {active_after_cursor_reversed} AND {list_filters} {activity_order_reversed}

-- name: sessions_through_creation
-- Return a filtered page, newest first, of the sessions with the keys in a JSON array.
SELECT {list_row} FROM {listed_sessions} WHERE {created_after_cursor} AND {list_filters} {creation_order}

-- name: sessions_through_creation_reversed
-- Return a filtered page, oldest first, of the sessions with the keys in a JSON array.
SELECT {list_row} FROM {listed_sessions} WHERE {created_after_cursor_reversed} AND {list_filters} {creation_order_reversed}

-- name: sessions_through_title
-- Return a filtered page, in title order, of the sessions with the keys in a JSON array.
SELECT {list_row} FROM {listed_sessions} WHERE {titled_after_cursor} AND {list_filters} {title_order}

-- name: sessions_through_title_reversed
-- Return a filtered page, in the reverse order of titles, of the sessions with the keys in a JSON array.
SELECT {list_row} FROM {listed_sessions} WHERE {titled_after_cursor_reversed} AND {list_filters} {title_order_reversed}

-- name: sessions_of_parent
-- Return the keys of the sessions whose parent is :value; no row if there are more than may be sorted.
{few_keys} (
    SELECT (tree << 20) | number AS key FROM recollect.sessions WHERE parent = :value::bigint {up_to_sort_limit}
) AS s {are_few}

-- name: sessions_of_external_id
-- Return the keys of the sessions with an external id; no row if there are more than may be sorted.
{few_keys} (
    SELECT (tree << 20) | number AS key FROM recollect.sessions WHERE owner = :owner AND external_id = :value::text AND deleted_at IS NULL {up_to_sort_limit}
) AS s {are_few}

-- name: sessions_of_id_prefix
-- Return the keys of the sessions whose id begins with :value; no row if there are more than may be sorted. The order, which
-- is that of the index, keeps the planner from reading all sessions of the owner through another one.
{few_keys} (
    SELECT (tree << 20) | number AS key FROM recollect.sessions WHERE owner = :owner AND id >= :value::text AND id <= :id_limit::text AND deleted_at IS NULL
    ORDER BY id {up_to_sort_limit}
) AS s {are_few}

-- name: labels_sessions
-- Return the keys of the sessions with a label, also in the trash; no row if there are more than may be sorted.
{few_keys} (
    SELECT (tree << 20) | session AS key FROM recollect.session_labels WHERE owner = :owner AND label = :value::text {up_to_sort_limit}
) AS s {are_few}

-- name: sessions_of_pin
-- Return the keys of the pinned sessions; no row if there are more than may be sorted.
{few_keys} (
    SELECT (tree << 20) | number AS key FROM recollect.sessions WHERE owner = :owner AND pinned_at IS NOT NULL AND deleted_at IS NULL {up_to_sort_limit}
) AS s {are_few}

-- name: sessions_of_untitled
-- Return the keys of the sessions without a title; no row if there are more than may be sorted.
{few_keys} (
    SELECT (tree << 20) | number AS key FROM recollect.sessions WHERE owner = :owner AND title IS NULL AND deleted_at IS NULL {up_to_sort_limit}
) AS s {are_few}

-- name: sessions_of_channel
-- Return the keys of the sessions of a channel; no row if there are more than may be sorted.
{few_keys} (
    SELECT (tree << 20) | number AS key FROM recollect.sessions WHERE owner = :owner AND channel = :value::text AND deleted_at IS NULL {up_to_sort_limit}
) AS s {are_few}

-- name: sessions_of_model
-- Return the keys of the sessions of a model; no row if there are more than may be sorted.
{few_keys} (
    SELECT (tree << 20) | number AS key FROM recollect.sessions WHERE owner = :owner AND model = :value::text AND deleted_at IS NULL {up_to_sort_limit}
) AS s {are_few}

-- name: sessions_of_status
-- Return the keys of the sessions with a status other than active; no row if there are more than may be sorted.
{few_keys} (
    SELECT (tree << 20) | number AS key FROM recollect.sessions WHERE owner = :owner AND status = :value::text AND status <> 'active' AND deleted_at IS NULL {up_to_sort_limit}
) AS s {are_few}

-- name: sessions_of_archive
-- Return the keys of the archived sessions; no row if there are more than may be sorted.
{few_keys} (
    SELECT (tree << 20) | number AS key FROM recollect.sessions WHERE owner = :owner AND archived_at IS NOT NULL AND deleted_at IS NULL {up_to_sort_limit}
) AS s {are_few}

-- name: title_set
-- Store the sort key of a title.
UPDATE recollect.sessions SET folded = :folded WHERE {is_session}

-- name: title_clear
-- Delete the sort key of a title.
UPDATE recollect.sessions SET folded = NULL WHERE {is_session}

-- name: labels_insert
-- Add the rows of labels, a JSON array, that a session lacks.
INSERT INTO recollect.session_labels (tree, session, owner, label)
SELECT s.tree, s.number, s.owner, l.value
FROM recollect.sessions AS s CROSS JOIN json_array_elements_text(:labels::text::json) AS l (value)
WHERE s.tree = :session::bigint >> 20 AND s.number = (:session::bigint & 1048575)::int
ON CONFLICT (tree, session, label) DO NOTHING

-- name: labels_delete
-- Delete the rows of a session's labels, except those in a JSON array.
DELETE FROM recollect.session_labels
WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int
    AND label NOT IN (SELECT l.value FROM json_array_elements_text(:labels::text::json) AS l (value))

-- name: sessions_by_prefix
-- Return sessions whose id begins with a text.
SELECT id, title FROM recollect.sessions
WHERE owner = :owner AND deleted_at IS NULL AND id >= :prefix AND id <= :last
ORDER BY id LIMIT :limit

-- name: sessions_by_external_id
-- Return sessions with an external id.
SELECT id, title FROM recollect.sessions WHERE owner = :owner AND external_id = :external_id::text AND deleted_at IS NULL
ORDER BY tree, number LIMIT :limit

-- name: sessions_by_title
-- Return sessions with exactly this title.
SELECT id, title FROM (
    SELECT id, title, active_at FROM recollect.sessions
    WHERE owner = :owner AND folded IN (:folded::text, left(lower(:title::text), 500)) AND deleted_at IS NULL OFFSET 0
) AS s WHERE title = :title::text ORDER BY active_at DESC LIMIT :limit

-- name: sessions_by_similar_title
-- Return sessions whose title differs at most in case and accents.
SELECT id, title FROM (
    SELECT id, title, active_at FROM recollect.sessions
    WHERE owner = :owner AND folded = :folded::text AND deleted_at IS NULL OFFSET 0
) AS s ORDER BY active_at DESC LIMIT :limit

-- name: sessions_of_tree_lock
-- Lock the rows that sessions_of_tree reads.
SELECT number FROM recollect.sessions WHERE tree = :tree ORDER BY number FOR NO KEY UPDATE NOWAIT

-- name: sessions_of_tree
-- Return the sessions of a tree with their head branches.
SELECT (tree << 20) | number AS session, id, (tree << 20) | branch AS head, deleted_at FROM recollect.sessions
WHERE tree = :tree ORDER BY number

-- name: sessions_outline
-- Return the sessions of a tree with all their columns, also those in the trash.
SELECT {session_row} FROM recollect.sessions WHERE tree = :tree ORDER BY number

-- name: sessions_revisions
-- Return the revisions of all sessions of an owner.
SELECT (tree << 20) | number AS session, id, revision FROM recollect.sessions
WHERE owner = :owner

-- name: session_revisions
-- Return the revisions of the sessions with an id, also in the trash.
SELECT (tree << 20) | number AS session, id, revision FROM recollect.sessions WHERE {has_id} AND deleted_at IS NULL
UNION ALL
SELECT (tree << 20) | number AS session, id, revision FROM recollect.sessions WHERE {has_id} AND deleted_at IS NOT NULL

-- name: session_insert
-- Insert a session as the most recently active one of its owner.
WITH tree_counter AS (
    UPDATE recollect.trees SET sessions = sessions + 1 WHERE tree = :tree RETURNING tree, sessions
)
INSERT INTO recollect.sessions (
    tree, number, owner, id, parent, relation, created_at, updated_at, active_at, last_message_at, message_count,
    token_count, input_tokens, output_tokens, {field_columns}
)
SELECT
    tree_counter.tree, tree_counter.sessions, :owner::text, :id::text, :parent::bigint, :relation::text, :now::bigint, :now::bigint,
    greatest(:now::bigint, {next_activity}), :last_message_at::bigint, :message_count::bigint, :token_count::bigint,
    :input_tokens::bigint, :output_tokens::bigint, {field_values}
FROM tree_counter
RETURNING (tree << 20) | number AS session

-- name: session_import
-- Insert a session with all its columns except the head branch and the parent, from an import or a copy.
WITH tree_counter AS (
    UPDATE recollect.trees SET sessions = sessions + 1 WHERE tree = :tree RETURNING tree, sessions
)
INSERT INTO recollect.sessions (
    tree, number, owner, id, relation, revision, created_at, updated_at, active_at, last_message_at, deleted_at,
    open_turns, message_count, token_count, input_tokens, output_tokens, data_schema_version, {field_columns}
)
SELECT
    tree_counter.tree, tree_counter.sessions, :owner::text, :id::text, :relation::text, :revision::bigint,
    :created_at::bigint, :updated_at::bigint, :active_at::bigint, :last_message_at::bigint, :deleted_at::bigint,
    :open_turns::int, :message_count::bigint, :token_count::bigint, :input_tokens::bigint, :output_tokens::bigint,
    :data_schema_version::int, {field_values}
FROM tree_counter
RETURNING (tree << 20) | number AS session

-- name: session_head
-- Set the head branch of a new session.
UPDATE recollect.sessions SET branch = (:head::bigint & 1048575)::int, last = :last, waiting = true WHERE {is_session}

-- name: session_switch
-- Make another branch the head of a session. :step is 0 if a later statement of the operation raises the revision.
UPDATE recollect.sessions
SET branch = b.number, last = b.last, waiting = true, revision = revision + :step, message_count = :message_count,
    token_count = :token_count, input_tokens = :input_tokens, output_tokens = :output_tokens,
    last_message_at = :last_message_at, updated_at = greatest(updated_at, :now)
FROM recollect.branches AS b
WHERE b.tree = :head::bigint >> 20 AND b.number = (:head::bigint & 1048575)::int
    AND sessions.tree = :session::bigint >> 20 AND sessions.number = (:session::bigint & 1048575)::int

-- name: session_advance
-- Count new messages, reserve their positions and raise the revision.
{advance_update}
WHERE {has_id} AND deleted_at IS NULL AND {revision_matches}
RETURNING (tree << 20) | number AS session, (tree << 20) | branch AS head, last - :messages::int AS last, branch, open_turns,
    {session_counts}

-- name: session_append
-- Append messages without tool calls to the head branch; no row if the session is missing or at another revision.
{append_ctes}
SELECT {append_row}, {session_counts} FROM advanced_session

-- name: session_append_with_calls
-- Append messages with tool calls.
{append_ctes}, {calls_insert_cte}
SELECT {append_row}, {session_counts} FROM advanced_session

-- name: session_append_lookup
-- Return the row that an append or a complete turn returned, by its transaction.
{committed_append_row}

-- name: session_append_probe
-- Return a row if an append of these messages may have written anything.
{append_probe}

-- name: session_save
-- Store a complete turn without tool calls like session_append; no row if a turn is open.
{save_turn_ctes}
SELECT {append_row}, {session_counts} FROM advanced_session

-- name: session_save_with_calls
-- Store a complete turn with tool calls.
{save_turn_ctes}, {calls_insert_cte}
SELECT {append_row}, {session_counts} FROM advanced_session

-- name: sessions_with_open_turns
-- Return the sessions with an open turn.
SELECT id FROM recollect.sessions WHERE owner = :owner AND deleted_at IS NULL AND open_turns > 0

-- name: session_change_open_turns
-- Change the number of open turns of a session.
UPDATE recollect.sessions SET open_turns = open_turns + :change::int WHERE {is_session}

-- name: session_import_times
-- Set the times of an imported session to those of its tool; a time that is NULL stays.
UPDATE recollect.sessions
SET created_at = coalesce(:created_at::bigint, created_at), active_at = coalesce(:active_at::bigint, active_at),
    last_message_at = coalesce(:active_at::bigint, last_message_at)
WHERE tree = :session::bigint >> 20 AND number = (:session::bigint & 1048575)::int

-- name: session_activate
-- Make a session the most recently active one of its owner.
UPDATE recollect.sessions
SET active_at = greatest(active_at, :now::bigint, 1 + (
    SELECT max(o.active_at) FROM recollect.sessions AS o WHERE o.owner = :owner AND o.deleted_at IS NULL
))
WHERE {is_session}
RETURNING active_at

-- name: session_touch
-- Raise the revision of a session, and count new messages if the branch is its head.
UPDATE recollect.sessions
SET revision = revision + 1,
    message_count = message_count + CASE WHEN {is_head} THEN :messages::bigint ELSE 0 END,
    token_count = token_count + CASE WHEN {is_head} THEN :tokens::bigint ELSE 0 END,
    input_tokens = input_tokens + CASE WHEN {is_head} THEN :input_tokens::bigint ELSE 0 END,
    output_tokens = output_tokens + CASE WHEN {is_head} THEN :output_tokens::bigint ELSE 0 END,
    last = last + CASE WHEN {is_head} THEN :messages::int ELSE 0 END, waiting = true,
    updated_at = greatest(updated_at, :now::bigint),
    last_message_at = CASE WHEN :messages::int > 0 AND {is_head}
        THEN greatest(last_message_at, :now::bigint) ELSE last_message_at END
WHERE {is_session} AND deleted_at IS NULL
RETURNING (tree << 20) | number AS session, (tree << 20) | branch AS head, last - :messages::int AS last, revision,
    message_count, token_count, input_tokens, output_tokens, updated_at, active_at, last_message_at

-- name: session_change
-- Raise the revision and change the counts of a session.
UPDATE recollect.sessions
SET revision = revision + 1, message_count = message_count + :messages, token_count = token_count + :tokens,
    input_tokens = input_tokens + :input_tokens, output_tokens = output_tokens + :output_tokens,
    updated_at = greatest(updated_at, :now)
WHERE {is_session}

-- name: session_update
-- Change the named columns of a session. :step is 0 if a later statement of the operation raises the revision.
UPDATE recollect.sessions
SET revision = revision + :step, updated_at = greatest(updated_at, :now),
    external_id = CASE WHEN strpos(:changed_columns::text, ',external_id,') > 0 THEN :external_id ELSE external_id END,
    title = CASE WHEN strpos(:changed_columns::text, ',title,') > 0 THEN :title ELSE title END,
    title_changed = CASE WHEN strpos(:changed_columns::text, ',title,') > 0 THEN true ELSE title_changed END,
    task = CASE WHEN strpos(:changed_columns::text, ',task,') > 0 THEN :task ELSE task END,
    status = CASE WHEN strpos(:changed_columns::text, ',status,') > 0 THEN :status ELSE status END,
    provider = CASE WHEN strpos(:changed_columns::text, ',provider,') > 0 THEN :provider ELSE provider END,
    provider_config = CASE WHEN strpos(:changed_columns::text, ',provider_config,') > 0 THEN :provider_config
        ELSE provider_config END,
    model = CASE WHEN strpos(:changed_columns::text, ',model,') > 0 THEN :model ELSE model END,
    working_dir = CASE WHEN strpos(:changed_columns::text, ',working_dir,') > 0 THEN :working_dir ELSE working_dir END,
    system_prompt = CASE WHEN strpos(:changed_columns::text, ',system_prompt,') > 0 THEN :system_prompt ELSE system_prompt END,
    color = CASE WHEN strpos(:changed_columns::text, ',color,') > 0 THEN :color ELSE color END,
    channel = CASE WHEN strpos(:changed_columns::text, ',channel,') > 0 THEN :channel ELSE channel END,
    channel_id = CASE WHEN strpos(:changed_columns::text, ',channel_id,') > 0 THEN :channel_id ELSE channel_id END,
    labels = CASE WHEN strpos(:changed_columns::text, ',labels,') > 0 THEN :labels ELSE labels END,
    metadata = CASE WHEN strpos(:changed_columns::text, ',metadata,') > 0 THEN :metadata ELSE metadata END,
    pinned_at = CASE WHEN strpos(:changed_columns::text, ',pinned_at,') > 0 THEN :pinned_at ELSE pinned_at END,
    archived_at = CASE WHEN strpos(:changed_columns::text, ',archived_at,') > 0 THEN :archived_at ELSE archived_at END
WHERE {has_id} AND deleted_at IS NULL AND (:expected::bigint IS NULL OR revision = :expected::bigint)
RETURNING {session_row}

-- name: session_parent_lock
-- Lock the rows that session_parent reads.
SELECT number FROM recollect.sessions WHERE {is_session} FOR NO KEY UPDATE

-- name: session_parent
-- Return the key of the parent of a session.
SELECT parent FROM recollect.sessions WHERE {is_session}

-- name: session_set_parent
-- Set or clear the parent of a session and the relation to it. Only this statement and the next one name these columns,
-- because a trigger counts the delegates of the parent again after an update that does.
UPDATE recollect.sessions SET parent = :parent::bigint, relation = :relation::text WHERE {is_session}

-- name: session_set_relation
-- Set or clear the relation of a session to its parent.
UPDATE recollect.sessions SET relation = :relation::text WHERE {is_session}

-- name: session_trash
-- Move a session to the trash.
UPDATE recollect.sessions SET deleted_at = :now::bigint, revision = revision + 1,
    updated_at = greatest(updated_at, :now::bigint)
WHERE {has_id} AND deleted_at IS NULL
RETURNING (tree << 20) | number

-- name: session_restore
-- Move a session out of the trash.
UPDATE recollect.sessions SET deleted_at = NULL, revision = revision + 1, updated_at = greatest(updated_at, :now),
    active_at = active_at + (active_at IS NOT DISTINCT FROM (
        SELECT max(o.active_at) FROM recollect.sessions AS o WHERE o.owner = :owner AND o.deleted_at IS NULL
    ))::int
WHERE {is_session}

-- name: session_delete
-- Delete a session, its idempotency keys, snapshots and labels.
WITH detached_branches AS (
    UPDATE recollect.branches SET session = NULL
    WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int
), detached_children AS (
    UPDATE recollect.sessions SET parent = NULL WHERE parent = :session::bigint
), deleted_appends AS (
    DELETE FROM recollect.appends
    WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int
), deleted_snapshots AS (
    DELETE FROM recollect.snapshots
    WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int
), deleted_labels AS (
    DELETE FROM recollect.session_labels
    WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int
)
DELETE FROM recollect.sessions WHERE {is_session}

