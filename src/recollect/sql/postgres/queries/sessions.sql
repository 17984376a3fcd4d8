-- What is reckoned from another row to find one by is a SELECT of its own, here and in other files: where a policy hides rows,
-- PostgreSQL 15 takes no index for what a function makes of a column, since the function could tell what it was given.
--
-- A list is walked in its order by one plan for whatever is asked for: a plan made for each page takes as long as the page.
-- OFFSET 0 has the calls and the messages of each session looked at, and not first those of everyone read and hashed, which
-- a plan that was made for small tables does.

-- shared: appending
WITH advanced AS (
    {advance}
    WHERE {named} AND deleted_at IS NULL AND {expected}
    RETURNING {place}, {counts}
), said AS (
    INSERT INTO recollect.messages ({message})
    SELECT tree, branch, before + at, NULL, {said} FROM advanced, {rows}
)

-- shared: saving
WITH advanced AS (
    {advance}
    WHERE {named} AND deleted_at IS NULL AND open_turns = 0 AND {expected}
    RETURNING {place}, {counts}
), said AS (
    INSERT INTO recollect.messages ({message})
    SELECT tree, branch, before + at, before + 1, {said} FROM advanced, {rows}
), ran AS (
    INSERT INTO recollect.turns ({turn}) SELECT tree, branch, before + 1, {ran} FROM advanced
)

-- shared: calling
called AS (
    INSERT INTO recollect.tool_calls ({call})
    SELECT tree, branch, before + at, part, branch, before + result, {called} FROM advanced, {calls}
)

-- shared: recalled
SELECT (s.tree << 20) | s.number, (s.tree << 20) | m.branch, m.before, m.branch, s.open_turns, {counts}
FROM recollect.sessions AS s
JOIN LATERAL (
    SELECT n.branch, min(n.position) - 1 AS before, count(*) AS written
    FROM recollect.branches AS b
    JOIN recollect.messages AS n ON n.tree = b.tree AND n.branch = b.number
    WHERE b.tree = s.tree AND b.session = s.number AND n.xmin = :transaction::text::xid
    GROUP BY n.branch
) AS m ON m.written = :messages::bigint
WHERE {named}

-- shared: traced
SELECT 1 FROM recollect.sessions AS s
WHERE {named} AND EXISTS (
    SELECT FROM recollect.branches AS b
    JOIN recollect.messages AS n ON n.tree = b.tree AND n.branch = b.number
    WHERE b.tree = s.tree AND b.session = s.number AND n.created_at = ANY(:rows.6::bigint[])
)

-- shared: advance
UPDATE recollect.sessions
SET revision = revision + 1, message_count = message_count + :messages, token_count = token_count + :tokens,
    input_tokens = input_tokens + :input_tokens, output_tokens = output_tokens + :output_tokens,
    last = last + :messages::int, waiting = true, updated_at = greatest(updated_at, :now::bigint),
    last_message_at = greatest(last_message_at, :now::bigint),
    active_at = CASE WHEN active_at < greatest(:now::bigint - 60000, newest.at)
        THEN greatest(:now::bigint, newest.at + 1) ELSE active_at END
FROM (
    SELECT max(o.active_at) AS at FROM recollect.sessions AS o
    WHERE o.owner = :owner AND o.deleted_at IS NULL
) AS newest

-- shared: expected
(:expected::bigint IS NULL OR revision = :expected::bigint)

-- shared: place
tree, number, branch, last - :messages::int AS before, open_turns

-- shared: placed
(tree << 20) | number, (tree << 20) | branch, before, branch, open_turns

-- shared: counts
revision, message_count, token_count, input_tokens, output_tokens, updated_at, active_at, last_message_at

-- shared: message
tree, branch, position, turn, role, state, tokens, input_tokens, output_tokens, created_at, completed_at, format, model,
error, metadata, native, blobs, parts

-- shared: said
role, state, tokens, given, taken, created_at, completed_at, format, model, error, metadata, native, blobs, parts

-- shared: rows
unnest(
    :rows.1::text[], :rows.2::text[], :rows.3::bigint[], :rows.4::bigint[], :rows.5::bigint[], :rows.6::bigint[],
    :rows.7::bigint[], :rows.8::text[], :rows.9::text[], :rows.10::text[], :rows.11::text[], :rows.12::text[],
    :rows.13::text[], :rows.14::text[]
) WITH ORDINALITY AS r (
    role, state, tokens, given, taken, created_at, completed_at, format, model, error, metadata, native, blobs, parts, at
)

-- shared: turn
tree, branch, position, status, started_at, ended_at, latency_ms, input_tokens, output_tokens, model, error

-- shared: ran
:turn.1::text, :turn.2::bigint, :turn.3::bigint, :turn.4::bigint, :turn.5::bigint, :turn.6::bigint, :turn.7::text,
:turn.8::text

-- shared: call
tree, message_branch, message_position, part, branch, result, call_id, tool, status, result_part, created_at, started_at,
completed_at, latency_ms, error_code, error_message

-- shared: called
call_id, tool, status, result_part, created_at, started_at, completed_at, latency_ms, error_code, error_message

-- shared: calls
unnest(
    :calls.2::bigint[], :calls.3::bigint[], :calls.5::text[], :calls.6::text[], :calls.7::text[], :calls.9::bigint[],
    :calls.10::bigint[], :calls.11::bigint[], :calls.12::bigint[], :calls.13::bigint[], :calls.14::bigint[],
    :calls.15::text[], :calls.16::text[]
) AS c (
    at, part, call_id, tool, status, result, result_part, created_at, started_at, completed_at, latency_ms, error_code,
    error_message
)

-- shared: opening
UPDATE recollect.sessions
SET active_at = CASE WHEN open_turns > 0 THEN active_at ELSE greatest(active_at, :now::bigint, {next}) END
WHERE {named} AND deleted_at IS NULL

-- shared: making
INSERT INTO recollect.sessions (
    tree, number, branch, owner, id, parent, relation, created_at, updated_at, active_at, pinned_at, archived_at, status,
    channel, channel_id, external_id, title, folded, task, provider, provider_config, model, working_dir, system_prompt,
    color, metadata
)
SELECT
    planted.tree, 1, 1, :owner::text, :id::text, (p.tree << 20) | p.number,
    CASE WHEN p.tree IS NOT NULL THEN 'delegate' END, :now::bigint, :now::bigint, greatest(:now::bigint, {next}),
    :pinned_at::bigint, :archived_at::bigint, :status::text, :channel::text, :channel_id::text, :external_id::text,
    :title::text, :folded::text, :task::text, :provider::text, :provider_config::text, :model::text, :working_dir::text,
    :system_prompt::text, :color::text, :metadata::text
FROM planted
LEFT JOIN recollect.sessions AS p ON p.owner = :owner AND p.id = :parent::text AND p.deleted_at IS NULL
RETURNING sessions.*

-- shared: with
branched AS (
    INSERT INTO recollect.branches (tree, number, session, created_at) SELECT tree, 1, 1, :now::bigint FROM planted
)

-- shared: next
(SELECT 1 + max(o.active_at) FROM recollect.sessions AS o WHERE o.owner = :owner AND o.deleted_at IS NULL)

-- shared: walking
SELECT set_config('enable_sort', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)

-- shared: generic
SELECT set_config('plan_cache_mode', 'force_generic_plan', true)

-- shared: narrowed
few AS MATERIALIZED (
    SELECT CASE
        WHEN NOT (:of_parent::bigint IS NULL OR EXISTS (SELECT 1 {of_parent} {more})) THEN 1
        WHEN NOT (:of_pin::boolean IS NULL OR EXISTS (SELECT 1 {of_pin} {more})) THEN 2
        WHEN NOT (:of_untitled::boolean IS NULL OR EXISTS (SELECT 1 {of_untitled} {more})) THEN 3
        WHEN NOT (:of_channel::text IS NULL OR EXISTS (SELECT 1 {of_channel} {more})) THEN 4
        WHEN NOT (:of_model::text IS NULL OR EXISTS (SELECT 1 {of_model} {more})) THEN 5
        WHEN NOT (:of_status::text IS NULL OR EXISTS (SELECT 1 {of_status} {more})) THEN 6
        WHEN NOT (:of_archive::boolean IS NULL OR EXISTS (SELECT 1 {of_archive} {more})) THEN 7
        ELSE 0
    END AS by
)

-- shared: these
(
    SELECT * {of_parent} AND NOT (:of_parent::bigint IS NULL OR {few} <> 1)
    UNION ALL
    SELECT * {of_pin} AND NOT (:of_pin::boolean IS NULL OR {few} <> 2)
    UNION ALL
    SELECT * {of_untitled} AND NOT (:of_untitled::boolean IS NULL OR {few} <> 3)
    UNION ALL
    SELECT * {of_channel} AND NOT (:of_channel::text IS NULL OR {few} <> 4)
    UNION ALL
    SELECT * {of_model} AND NOT (:of_model::text IS NULL OR {few} <> 5)
    UNION ALL
    SELECT * {of_status} AND NOT (:of_status::text IS NULL OR {few} <> 6)
    UNION ALL
    SELECT * {of_archive} AND NOT (:of_archive::boolean IS NULL OR {few} <> 7)
    OFFSET 0
) AS sessions

-- shared: few
(SELECT few.by FROM few)

-- shared: of_parent
FROM recollect.sessions WHERE parent = :of_parent::bigint

-- shared: of_pin
FROM recollect.sessions WHERE owner = :owner AND pinned_at IS NOT NULL AND deleted_at IS NULL

-- shared: of_untitled
FROM recollect.sessions WHERE owner = :owner AND title IS NULL AND deleted_at IS NULL

-- shared: of_channel
FROM recollect.sessions WHERE owner = :owner AND channel = :of_channel::text AND deleted_at IS NULL

-- shared: of_model
FROM recollect.sessions WHERE owner = :owner AND model = :of_model::text AND deleted_at IS NULL

-- shared: of_status
FROM recollect.sessions
WHERE owner = :owner AND status = :of_status::text AND status <> 'active' AND deleted_at IS NULL

-- shared: of_archive
FROM recollect.sessions WHERE owner = :owner AND archived_at IS NOT NULL AND deleted_at IS NULL

-- shared: more
OFFSET :few::bigint

-- shared: session
(tree << 20) | number, tree, (tree << 20) | branch, open_turns, {told}

-- shared: shown
(tree << 20) | number, {told}

-- shared: told
id, created_at, updated_at, active_at, last_message_at, channel, channel_id, title, status, model, branch, revision,
message_count, token_count, input_tokens, output_tokens,
CASE WHEN coalesce(parent, pinned_at, archived_at, deleted_at) IS NOT NULL OR delegates <> 0 OR data_schema_version <> 1
    OR coalesce(external_id, task, provider, provider_config, working_dir, system_prompt, color, metadata) IS NOT NULL
THEN json_build_array(
    data_schema_version, delegates, parent_id, relation, external_id, task, provider, provider_config, working_dir,
    system_prompt, color, pinned_at, archived_at, deleted_at, metadata
) END

-- shared: chosen
(:archived::boolean IS NULL OR (archived_at IS NOT NULL) = :archived::boolean)
AND (:pinned::boolean IS NULL OR (pinned_at IS NOT NULL) = :pinned::boolean)
AND (:titled::boolean IS NULL OR (title IS NOT NULL) = :titled::boolean)
AND (:channel::text IS NULL OR channel = :channel::text)
AND (:model::text IS NULL OR model = :model::text)
AND (:status::text IS NULL OR status = :status::text)
AND (:parent::bigint IS NULL OR parent = :parent::bigint)
AND (:delegates::boolean IS NULL OR (relation IS NOT DISTINCT FROM 'delegate') = :delegates::boolean)
AND (:shown::text IS NULL OR ((tree << 20) | number) NOT IN (
    SELECT j.value::bigint FROM json_array_elements_text(:shown::text::json) AS j (value)
))
AND (:tool::text IS NULL OR EXISTS (
    SELECT 1 FROM recollect.tool_calls AS t
    WHERE t.tree = sessions.tree AND t.message_branch = sessions.branch AND t.tool = :tool::text OFFSET 0
) OR EXISTS (
    SELECT 1 FROM {elsewhere} CROSS JOIN LATERAL (
        SELECT 1 FROM recollect.tool_calls AS t
        WHERE t.tree = sessions.tree AND t.message_branch = b.number AND t.tool = :tool::text OFFSET 0
    ) AS t
))
AND (:role::text IS NULL OR EXISTS (
    SELECT 1 FROM recollect.messages AS m
    WHERE m.tree = sessions.tree AND m.branch = sessions.branch AND m.role = :role::text AND m.deleted_at IS NULL OFFSET 0
) OR EXISTS (
    SELECT 1 FROM {elsewhere} CROSS JOIN LATERAL (
        SELECT 1 FROM recollect.messages AS m
        WHERE m.tree = sessions.tree AND m.branch = b.number AND m.role = :role::text AND m.deleted_at IS NULL OFFSET 0
    ) AS m
))

-- shared: elsewhere
(
    SELECT b.number FROM recollect.branches AS b
    WHERE b.tree = sessions.tree AND b.session = sessions.number AND b.number <> sessions.branch OFFSET 0
) AS b

-- shared: active
owner = :owner AND deleted_at IS NULL
AND (:beyond::boolean IS NULL OR
    (active_at, tree, number) < (:at::bigint, :key::bigint >> 20, (:key::bigint & 1048575)::int))
AND (:bounded::boolean IS NULL OR active_at >= :since::bigint)

-- shared: newest
ORDER BY active_at DESC, tree DESC, number DESC LIMIT (SELECT :limit::bigint)

-- shared: created
owner = :owner AND deleted_at IS NULL
AND (:beyond::boolean IS NULL OR
    (created_at, tree, number) < (:at::bigint, :key::bigint >> 20, (:key::bigint & 1048575)::int))
AND (:bounded::boolean IS NULL OR created_at >= :since::bigint)

-- shared: latest
ORDER BY created_at DESC, tree DESC, number DESC LIMIT (SELECT :limit::bigint)

-- shared: titled
owner = :owner AND folded IS NOT NULL AND deleted_at IS NULL
AND (:beyond::boolean IS NULL OR
    (folded, tree, number) > (:folded::text, :key::bigint >> 20, (:key::bigint & 1048575)::int))
AND (:bounded::boolean IS NULL OR (active_at >= :since::bigint AND active_at < :until::bigint))

-- shared: alphabetical
ORDER BY folded, tree, number LIMIT (SELECT :limit::bigint)

-- shared: this
tree = :session::bigint >> 20 AND number = (:session::bigint & 1048575)::int

-- shared: named
owner = :owner AND id = :id

-- shared: stands
((tree << 20) | branch) = :branch::bigint

-- lock: session_get
SELECT number FROM recollect.sessions WHERE {named} AND deleted_at IS NULL FOR NO KEY UPDATE

-- name: session_get
SELECT {session} FROM recollect.sessions WHERE {named} AND deleted_at IS NULL

-- name: session_open
{opening}
RETURNING {session}

-- ends: session_open

-- name: session_ensure
WITH opened AS (
    {opening} RETURNING sessions.*
), planted AS (
    INSERT INTO recollect.trees (owner, sessions, branches) SELECT :owner::text, 1, 1
    WHERE NOT EXISTS (SELECT FROM opened) RETURNING tree
), made AS (
    {making}
), {with}
SELECT {session} FROM (SELECT * FROM opened UNION ALL SELECT * FROM made) AS sessions

-- ends: session_ensure

-- name: session_create
WITH planted AS (
    INSERT INTO recollect.trees (owner, sessions, branches) SELECT :owner::text, 1, 1
    WHERE NOT EXISTS (SELECT FROM recollect.sessions WHERE {named} AND deleted_at IS NULL) RETURNING tree
), made AS (
    {making}
), {with}
SELECT {session} FROM made AS sessions

-- ends: session_create
SELECT {session} FROM recollect.sessions
WHERE {named} AND deleted_at IS NULL AND (
    xmin = :transaction::text::xid OR EXISTS (
        SELECT FROM recollect.trees AS t WHERE t.tree = sessions.tree AND t.xmin = :transaction::text::xid
    )
)

-- traces: session_create
SELECT 1 FROM recollect.sessions WHERE {named} AND created_at = :now::bigint

-- lock: session_by_key
SELECT number FROM recollect.sessions WHERE {this} FOR NO KEY UPDATE

-- name: session_by_key
SELECT {session} FROM recollect.sessions WHERE {this}

-- lock: session_in_trash
SELECT number FROM recollect.sessions WHERE {named} AND deleted_at IS NOT NULL FOR NO KEY UPDATE

-- name: session_in_trash
SELECT {session} FROM recollect.sessions WHERE {named} AND deleted_at IS NOT NULL
ORDER BY deleted_at DESC, tree DESC, number DESC LIMIT 1

-- before: sessions_by_activity
{walking}

-- name: sessions_by_activity
SELECT {shown} FROM recollect.sessions WHERE {active} AND {chosen} {newest}

-- ends: sessions_by_activity

-- shared: usual
archived_at IS NULL AND relation IS DISTINCT FROM 'delegate'

-- name: sessions_usual
SELECT {shown} FROM recollect.sessions WHERE {active} AND {usual} {newest}

-- ends: sessions_usual

-- before: sessions_pinned_first
{walking}

-- name: sessions_pinned_first
WITH few AS MATERIALIZED (
    SELECT NOT EXISTS (SELECT 1 {of_pin} {more}) AS are
), pinned AS MATERIALIZED (
    SELECT * FROM (SELECT * {of_pin} AND (SELECT few.are FROM few) OFFSET 0) AS s WHERE {usual} {newest}
)
SELECT {shown} FROM (
    (SELECT * FROM pinned)
    UNION ALL
    (
        SELECT * FROM recollect.sessions
        WHERE owner = :owner AND deleted_at IS NULL AND pinned_at IS NULL AND (SELECT few.are FROM few) AND {usual}
        ORDER BY active_at DESC, tree DESC, number DESC LIMIT (SELECT :limit::bigint - count(*) FROM pinned)
    )
) AS sessions

-- ends: sessions_pinned_first

-- before: sessions_by_creation
{walking}

-- name: sessions_by_creation
SELECT {shown} FROM recollect.sessions WHERE {created} AND {chosen} {latest}

-- ends: sessions_by_creation

-- before: sessions_by_deletion
{walking}

-- name: sessions_by_deletion
SELECT {shown} FROM recollect.sessions
WHERE owner = :owner AND deleted_at IS NOT NULL
    AND (:beyond::boolean IS NULL OR
        (deleted_at, tree, number) < (:at::bigint, :key::bigint >> 20, (:key::bigint & 1048575)::int))
    AND (:bounded::boolean IS NULL OR deleted_at >= :since::bigint) AND {chosen}
ORDER BY deleted_at DESC, tree DESC, number DESC LIMIT (SELECT :limit::bigint)

-- ends: sessions_by_deletion

-- before: sessions_by_folded_title
{walking}

-- name: sessions_by_folded_title
SELECT {shown} FROM recollect.sessions WHERE {titled} AND {chosen} {alphabetical}

-- ends: sessions_by_folded_title

-- before: sessions_through_activity
{walking}

-- name: sessions_through_activity
WITH {narrowed}
SELECT {shown} FROM (
    (SELECT * FROM {these} WHERE {active} AND {chosen} {newest})
    UNION ALL
    (SELECT * FROM recollect.sessions WHERE {few} = 0 AND {active} AND {chosen} {newest})
) AS sessions {newest}

-- ends: sessions_through_activity

-- before: sessions_through_creation
{walking}

-- name: sessions_through_creation
WITH {narrowed}
SELECT {shown} FROM (
    (SELECT * FROM {these} WHERE {created} AND {chosen} {latest})
    UNION ALL
    (SELECT * FROM recollect.sessions WHERE {few} = 0 AND {created} AND {chosen} {latest})
) AS sessions {latest}

-- ends: sessions_through_creation

-- before: sessions_through_title
{walking}

-- name: sessions_through_title
WITH {narrowed}
SELECT {shown} FROM (
    (SELECT * FROM {these} WHERE {titled} AND {chosen} {alphabetical})
    UNION ALL
    (SELECT * FROM recollect.sessions WHERE {few} = 0 AND {titled} AND {chosen} {alphabetical})
) AS sessions {alphabetical}

-- ends: sessions_through_title

-- name: title_set
UPDATE recollect.sessions SET folded = :folded WHERE {this}

-- name: title_clear
UPDATE recollect.sessions SET folded = NULL WHERE {this}

-- name: sessions_by_prefix
SELECT id, title FROM recollect.sessions
WHERE owner = :owner AND deleted_at IS NULL AND id >= :prefix AND id < :after
ORDER BY id LIMIT :limit

-- name: sessions_by_title
SELECT id, title FROM (
    SELECT id, title, active_at FROM recollect.sessions
    WHERE owner = :owner AND folded IN (:folded::text, left(lower(:title::text), 500)) AND deleted_at IS NULL OFFSET 0
) AS s WHERE title = :title::text ORDER BY active_at DESC LIMIT :limit

-- name: sessions_titled_alike
SELECT id, title FROM (
    SELECT id, title, active_at FROM recollect.sessions
    WHERE owner = :owner AND folded = :folded::text AND deleted_at IS NULL OFFSET 0
) AS s ORDER BY active_at DESC LIMIT :limit

-- lock: sessions_of_tree
SELECT number FROM recollect.sessions WHERE tree = :tree ORDER BY number FOR NO KEY UPDATE NOWAIT

-- name: sessions_of_tree
SELECT (tree << 20) | number, id, (tree << 20) | branch, deleted_at FROM recollect.sessions
WHERE tree = :tree ORDER BY number

-- name: sessions_revisions
SELECT (tree << 20) | number, id, revision FROM recollect.sessions
WHERE owner = :owner

-- name: session_revisions
SELECT (tree << 20) | number, id, revision FROM recollect.sessions WHERE {named} AND deleted_at IS NULL
UNION ALL
SELECT (tree << 20) | number, id, revision FROM recollect.sessions WHERE {named} AND deleted_at IS NOT NULL

-- name: session_insert
WITH place AS (
    UPDATE recollect.trees SET sessions = sessions + 1 WHERE tree = :tree RETURNING tree, sessions
)
INSERT INTO recollect.sessions (
    tree, number, owner, id, parent, relation, created_at, updated_at, active_at, last_message_at, pinned_at,
    archived_at, status, channel, channel_id, external_id, title, task, provider, provider_config, model, working_dir,
    system_prompt, color, metadata, message_count, token_count, input_tokens, output_tokens
)
SELECT
    place.tree, place.sessions, :owner::text, :id::text, :parent::bigint, :relation::text, :now::bigint, :now::bigint,
    greatest(:now::bigint, {next}), :last_message_at::bigint, :pinned_at::bigint, :archived_at::bigint, :status::text, :channel::text,
    :channel_id::text, :external_id::text, :title::text, :task::text, :provider::text, :provider_config::text,
    :model::text, :working_dir::text, :system_prompt::text, :color::text, :metadata::text, :message_count::bigint,
    :token_count::bigint, :input_tokens::bigint, :output_tokens::bigint
FROM place
RETURNING (tree << 20) | number

-- name: session_head
UPDATE recollect.sessions SET branch = :branch, last = :last, waiting = true WHERE {this}

-- name: session_stand
UPDATE recollect.sessions
SET branch = b.number, last = b.last, waiting = true, revision = revision + 1, message_count = :message_count,
    token_count = :token_count, input_tokens = :input_tokens, output_tokens = :output_tokens,
    last_message_at = :last_message_at, updated_at = greatest(updated_at, :now)
FROM recollect.branches AS b
WHERE b.tree = :head::bigint >> 20 AND b.number = (:head::bigint & 1048575)::int
    AND sessions.tree = :session::bigint >> 20 AND sessions.number = (:session::bigint & 1048575)::int

-- name: session_advance
{advance}
WHERE {named} AND deleted_at IS NULL AND {expected}
RETURNING (tree << 20) | number, (tree << 20) | branch, last - :messages::int, branch, open_turns, {counts}

-- name: session_append
{appending}, {calling}
SELECT {placed}, {counts} FROM advanced

-- brief: session_append
{appending}
SELECT {placed}, {counts} FROM advanced

-- ends: session_append
{recalled}

-- traces: session_append
{traced}

-- name: session_save
{saving}, {calling}
SELECT {placed}, {counts} FROM advanced

-- brief: session_save
{saving}
SELECT {placed}, {counts} FROM advanced

-- ends: session_save
{recalled}

-- traces: session_save
{traced}

-- name: sessions_held
SELECT id FROM recollect.sessions WHERE owner = :owner AND deleted_at IS NULL AND open_turns > 0

-- name: sessions_running
SELECT id FROM recollect.sessions
WHERE owner = :owner AND deleted_at IS NULL AND active_at >= :since AND open_turns > 0

-- name: session_opens_turn
UPDATE recollect.sessions SET open_turns = open_turns + :change::int WHERE {this}

-- name: session_activate
UPDATE recollect.sessions
SET active_at = greatest(active_at, :now::bigint, 1 + (
    SELECT max(o.active_at) FROM recollect.sessions AS o WHERE o.owner = :owner AND o.deleted_at IS NULL
))
WHERE {this}
RETURNING active_at

-- name: session_stir
UPDATE recollect.sessions
SET revision = revision + 1,
    message_count = message_count + CASE WHEN {stands} THEN :messages::bigint ELSE 0 END,
    token_count = token_count + CASE WHEN {stands} THEN :tokens::bigint ELSE 0 END,
    input_tokens = input_tokens + CASE WHEN {stands} THEN :input_tokens::bigint ELSE 0 END,
    output_tokens = output_tokens + CASE WHEN {stands} THEN :output_tokens::bigint ELSE 0 END,
    last = last + CASE WHEN {stands} THEN :messages::int ELSE 0 END, waiting = true,
    updated_at = greatest(updated_at, :now::bigint),
    last_message_at = CASE WHEN :messages::int > 0 AND {stands}
        THEN greatest(last_message_at, :now::bigint) ELSE last_message_at END
WHERE {this} AND deleted_at IS NULL
RETURNING (tree << 20) | number, (tree << 20) | branch, last - :messages::int, revision, message_count, token_count,
    input_tokens, output_tokens, updated_at, active_at, last_message_at

-- name: session_change
UPDATE recollect.sessions
SET revision = revision + 1, message_count = message_count + :messages, token_count = token_count + :tokens,
    input_tokens = input_tokens + :input_tokens, output_tokens = output_tokens + :output_tokens,
    updated_at = greatest(updated_at, :now)
WHERE {this}

-- name: session_update
UPDATE recollect.sessions
SET revision = revision + 1, updated_at = greatest(updated_at, :now),
    external_id = CASE WHEN strpos(:names::text, ',external_id,') > 0 THEN :external_id ELSE external_id END,
    title = CASE WHEN strpos(:names::text, ',title,') > 0 THEN :title ELSE title END,
    title_changed = CASE WHEN strpos(:names::text, ',title,') > 0 THEN true ELSE title_changed END,
    task = CASE WHEN strpos(:names::text, ',task,') > 0 THEN :task ELSE task END,
    status = CASE WHEN strpos(:names::text, ',status,') > 0 THEN :status ELSE status END,
    provider = CASE WHEN strpos(:names::text, ',provider,') > 0 THEN :provider ELSE provider END,
    provider_config = CASE WHEN strpos(:names::text, ',provider_config,') > 0 THEN :provider_config
        ELSE provider_config END,
    model = CASE WHEN strpos(:names::text, ',model,') > 0 THEN :model ELSE model END,
    working_dir = CASE WHEN strpos(:names::text, ',working_dir,') > 0 THEN :working_dir ELSE working_dir END,
    system_prompt = CASE WHEN strpos(:names::text, ',system_prompt,') > 0 THEN :system_prompt ELSE system_prompt END,
    color = CASE WHEN strpos(:names::text, ',color,') > 0 THEN :color ELSE color END,
    channel = CASE WHEN strpos(:names::text, ',channel,') > 0 THEN :channel ELSE channel END,
    channel_id = CASE WHEN strpos(:names::text, ',channel_id,') > 0 THEN :channel_id ELSE channel_id END,
    metadata = CASE WHEN strpos(:names::text, ',metadata,') > 0 THEN :metadata ELSE metadata END,
    pinned_at = CASE WHEN strpos(:names::text, ',pinned_at,') > 0 THEN :pinned_at ELSE pinned_at END,
    archived_at = CASE WHEN strpos(:names::text, ',archived_at,') > 0 THEN :archived_at ELSE archived_at END
WHERE {named} AND deleted_at IS NULL AND (:expected::bigint IS NULL OR revision = :expected::bigint)
RETURNING {session}

-- name: session_trash
UPDATE recollect.sessions SET deleted_at = :now::bigint, revision = revision + 1,
    updated_at = greatest(updated_at, :now::bigint)
WHERE {named} AND deleted_at IS NULL
RETURNING (tree << 20) | number

-- name: session_restore
UPDATE recollect.sessions SET deleted_at = NULL, revision = revision + 1, updated_at = greatest(updated_at, :now)
WHERE {this}
RETURNING {session}

-- name: session_delete
WITH freed AS (
    UPDATE recollect.branches SET session = NULL
    WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int
), orphaned AS (
    UPDATE recollect.sessions SET parent = NULL WHERE parent = :session::bigint
), forgotten AS (
    DELETE FROM recollect.appends
    WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int
), dropped AS (
    DELETE FROM recollect.snapshots
    WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int
)
DELETE FROM recollect.sessions WHERE {this}

-- name: setting_get
SELECT value FROM recollect.settings WHERE owner = :owner AND key = :key

-- name: setting_set
INSERT INTO recollect.settings (owner, key, value, updated_at) VALUES (:owner, :key, :value, :now)
ON CONFLICT (owner, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at

-- name: setting_delete
DELETE FROM recollect.settings WHERE owner = :owner AND key = :key

-- name: setting_touch
UPDATE recollect.settings SET updated_at = :now WHERE owner = :owner AND key = :key
RETURNING key

-- name: settings_between
SELECT key, value, updated_at FROM recollect.settings WHERE owner = :owner AND key >= :low AND key < :high ORDER BY key
