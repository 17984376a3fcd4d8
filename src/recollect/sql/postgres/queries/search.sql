What is looked for is named before a query, by a setting of the transaction that the policies of these tables read: see the
migration. Where a role passes policies by ({bypassed}), it stands in the query. Whoever writes the index takes one lock
for its owner, as in SQLite. What is deleted is gone with the transaction, so that nothing has to be written over or made
smaller after it.

-- shared: ranked
WITH {phrases}
SELECT (f.tree << 20) | f.branch, f.position, {rank}
FROM (
    (SELECT i.* {counting} AND NOT {bypassed} {newest})
    UNION ALL
    (SELECT i.* {counting} AND {bypassed} AND i.owner = recollect.owner() AND i.words @@ (SELECT recollect.sought()) {newest})
) AS f CROSS JOIN phrases AS p

-- shared: newest
ORDER BY i.tree DESC, i.branch DESC, i.position DESC LIMIT nullif(:pool::bigint, -1)

-- shared: counting
FROM {placed} WHERE {between} AND {counts}

-- shared: placed
recollect.search_index AS i
JOIN recollect.branches AS b ON b.tree = i.tree AND b.number = i.branch
LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session

-- shared: counts
CASE
    WHEN :ranges::json IS NOT NULL THEN EXISTS (
        SELECT 1 FROM json_array_elements(:ranges::json) AS r
        WHERE (r.value ->> 0)::bigint = (i.tree << 20) | i.branch AND (r.value ->> 1)::bigint < i.position
            AND (r.value ->> 2)::bigint >= i.position
    )
    WHEN s.owner <> :owner THEN false
    WHEN s.number IS NOT NULL AND (s.deleted_at IS NOT NULL) = :deleted::boolean AND {suits} THEN true
    ELSE EXISTS (SELECT 1 FROM recollect.branches AS c WHERE c.tree = b.tree AND c.parent = b.number OFFSET 0)
END
AND (:plain::boolean OR EXISTS (
    SELECT 1 FROM recollect.messages AS m
    WHERE m.tree = i.tree AND m.branch = i.branch AND m.position = i.position
        AND (:since::bigint IS NULL OR m.created_at >= :since::bigint)
        AND (:until::bigint IS NULL OR m.created_at < :until::bigint)
        AND (:models::text IS NULL
            OR coalesce(m.model, s.model) = ANY ((SELECT recollect.listed(:models))::text[]))
        AND (:no_models::text IS NULL
            OR coalesce(m.model, s.model, '') <> ALL ((SELECT recollect.listed(:no_models))::text[]))
))

-- shared: suits
(:delegates::boolean OR s.relation IS DISTINCT FROM 'delegate')
AND (:archived::boolean IS NULL OR (s.archived_at IS NOT NULL) = :archived::boolean)
AND (:pinned::boolean IS NULL OR (s.pinned_at IS NOT NULL) = :pinned::boolean)
AND (:channels::text IS NULL OR s.channel = ANY ((SELECT recollect.listed(:channels))::text[]))
AND (:no_channels::text IS NULL OR s.channel IS NULL
    OR s.channel <> ALL ((SELECT recollect.listed(:no_channels))::text[]))
AND (:statuses::text IS NULL OR s.status = ANY ((SELECT recollect.listed(:statuses))::text[]))
AND (:no_statuses::text IS NULL OR s.status <> ALL ((SELECT recollect.listed(:no_statuses))::text[]))
AND (:no_sessions::text IS NULL OR s.id <> ALL ((SELECT recollect.listed(:no_sessions))::text[]))

-- shared: session
s.id, s.title, s.channel, s.archived_at, s.deleted_at, s.parent_id

-- shared: listed
(
    SELECT (e.value ->> 0)::bigint >> 20 AS tree, ((e.value ->> 0)::bigint & 1048575)::int AS branch,
        (e.value ->> 1)::int AS position
    FROM json_array_elements(:hits::json) AS e OFFSET 0
) AS h

-- shared: branch
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int

-- shared: titled
tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int

-- shared: this
tree = :branch::bigint >> 20 AND number = (:branch::bigint & 1048575)::int

-- shared: indexing
SELECT m.position, m.role, m.state, m.blobs, m.parts::varchar
FROM recollect.messages AS m
LEFT JOIN recollect.search_index AS i ON i.tree = m.tree AND i.branch = m.branch AND i.position = m.position
WHERE m.tree = :branch::bigint >> 20 AND m.branch = (:branch::bigint & 1048575)::int
    AND m.position > :low::bigint AND m.position <= :high::bigint

-- shared: untitled
SELECT (tree << 20) | number, title FROM recollect.sessions WHERE owner = :owner AND title_changed

-- shared: reached
CASE WHEN s.branch = b.number THEN s.last ELSE b.last END

-- shared: unsettled
FROM recollect.sessions AS s WHERE s.owner = :owner AND s.waiting

-- shared: mark
SELECT term FROM recollect.search_terms WHERE owner = recollect.owner() AND term < ' ' LIMIT 1

-- shared: alone
SELECT pg_advisory_xact_lock(hashtextextended('recollect search ' || recollect.owner(), 0))

-- shared: seek
SELECT set_config('recollect.sought', :sought::text, true)

-- shared: walking
set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true),
set_config('enable_sort', 'off', true), set_config('enable_hashjoin', 'off', true),
set_config('enable_mergejoin', 'off', true), {planned}, set_config('max_parallel_workers_per_gather', '0', true)

-- shared: one_by_one
set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
set_config('enable_mergejoin', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)

-- shared: planned
set_config('plan_cache_mode', 'force_custom_plan', true)

-- shared: roomy
CASE WHEN pg_size_bytes(current_setting('work_mem')) < 33554432 THEN set_config('work_mem', '32MB', true) END

-- shared: between
(:below_branch::bigint IS NULL OR (i.tree, i.branch, i.position)
    < (:below_branch::bigint >> 20, (:below_branch::bigint & 1048575)::int, :below_position::bigint))
AND (i.tree, i.branch, i.position)
    >= (:low_branch::bigint >> 20, (:low_branch::bigint & 1048575)::int, :low_position::bigint)

-- shared: among
(:below_branch::bigint IS NULL OR (i.tree + 0, i.branch, i.position)
    < (:below_branch::bigint >> 20, (:below_branch::bigint & 1048575)::int, :below_position::bigint))
AND (i.tree + 0, i.branch, i.position)
    >= (:low_branch::bigint >> 20, (:low_branch::bigint & 1048575)::int, :low_position::bigint)

-- shared: bypassed
NOT (SELECT row_security_active('recollect.search_index'))

-- shared: phrases
phrases AS MATERIALIZED (
    SELECT array_agg((p.value ->> 0)::tsquery) AS sought, array_agg((p.value ->> 1)::float8) AS weights,
        set_config('plan_cache_mode', 'auto', true)
    FROM json_array_elements(:phrases::json) AS p
)

-- shared: rank
-(
    recollect.search_fit(f.words, f.length, p.sought[1], p.weights[1])
    + recollect.search_fit(f.words, f.length, p.sought[2], p.weights[2])
    + recollect.search_fit(f.words, f.length, p.sought[3], p.weights[3])
    + recollect.search_fit(f.words, f.length, p.sought[4], p.weights[4])
    + CASE WHEN p.sought[5] IS NULL THEN 0 ELSE recollect.search_fits(f.words, f.length, p.sought[5:], p.weights[5:]) END
)

-- before: search_waiting
SELECT {one_by_one}

-- name: search_waiting
SELECT NULL::bigint AS key, (SELECT count(*) FROM (SELECT {unsettled} LIMIT :many::bigint) AS u), NULL::int, ({mark}),
    EXISTS ({untitled})
UNION ALL
SELECT (tree << 20) | number, (tree << 20) | session, last, NULL, NULL
FROM (
    SELECT b.tree, b.number, b.session, b.indexed_to, {reached} AS last
    FROM (SELECT s.tree, s.number, s.branch, s.last {unsettled} OFFSET 0) AS s
    JOIN recollect.branches AS b ON b.tree = s.tree AND b.session = s.number
    UNION ALL
    SELECT b.tree, b.number, NULL, b.indexed_to, (
        SELECT n.position FROM recollect.messages AS n WHERE n.tree = b.tree AND n.branch = b.number
        ORDER BY n.position DESC LIMIT 1
    )
    FROM recollect.branches AS b WHERE b.owner = :owner AND b.session IS NULL
) AS reached
WHERE last > indexed_to
ORDER BY key NULLS FIRST

-- ends: search_waiting

-- name: search_unsettled
SELECT (s.tree << 20) | s.number {unsettled} AND (s.tree, s.number) > (:after::bigint >> 20, (:after::bigint & 1048575)::int)
ORDER BY s.tree, s.number LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED

-- name: search_settle
UPDATE recollect.sessions AS s SET waiting = false
FROM (
    SELECT j.value::bigint >> 20 AS tree, (j.value::bigint & 1048575)::int AS number
    FROM json_array_elements_text(:keys::json) AS j (value) OFFSET 0
) AS k
WHERE s.tree = k.tree AND s.number = k.number AND NOT EXISTS (
    SELECT FROM recollect.branches AS b
    WHERE b.tree = s.tree AND b.session = s.number
        AND {reached} > b.indexed_to OFFSET 0
)

-- lock: search_untitled
{alone}

-- name: search_untitled
{untitled} ORDER BY tree, number LIMIT :limit

-- name: search_titled
UPDATE recollect.sessions SET title_changed = NULL
WHERE tree = :session::bigint >> 20 AND number = (:session::bigint & 1048575)::int

-- lock: search_title_get
{alone}

-- name: search_title_get
SELECT title FROM recollect.search_titles WHERE {titled}

-- name: search_title_delete
DELETE FROM recollect.search_titles WHERE {titled}

-- name: search_title_insert
INSERT INTO recollect.search_titles (tree, session, title, words, length)
SELECT :session::bigint >> 20, (:session::bigint & 1048575)::int, :title::text, w.words, w.length
FROM recollect.search_words(:title::text, '', '', 'a') AS w

-- lock: search_place
{alone}

-- name: search_place
SELECT indexed_to FROM recollect.branches WHERE {this}

-- name: search_unindexed
{indexing} AND i.position IS NULL
ORDER BY m.position LIMIT :limit

-- lock: search_indexed
{alone}

-- name: search_indexed
{indexing} AND i.position IS NOT NULL
ORDER BY m.position LIMIT :limit

-- name: search_counted
SELECT 0

-- name: search_growing
SELECT 1 FROM recollect.messages AS m
JOIN recollect.turns AS t ON t.tree = m.tree AND t.branch = m.branch AND t.position = m.turn
WHERE m.tree = :branch::bigint >> 20 AND m.branch = (:branch::bigint & 1048575)::int AND m.position = :position
    AND m.state IN ('pending', 'streaming') AND t.status = 'open'

-- name: search_tools
SELECT message_position, result, result_part, tool FROM recollect.tool_calls
WHERE tree = :of::bigint >> 20 AND message_branch = (:of::bigint & 1048575)::int
    AND message_position > :low::bigint AND message_position <= :high::bigint
    AND branch = (:branch::bigint & 1048575)::int AND result IS NOT NULL

-- name: search_insert
INSERT INTO recollect.search_index (tree, branch, position, words, length)
SELECT ?1::bigint >> 20, (?1::bigint & 1048575)::int, ?2::int, w.words, w.length
FROM recollect.search_words(?3, ?4, ?5, ?6) AS w

-- name: search_delete
DELETE FROM recollect.search_index
WHERE tree = ?1::bigint >> 20 AND branch = (?1::bigint & 1048575)::int AND position = ?2::int

-- lock: search_mark
{alone}

-- name: search_mark
{mark}

-- name: search_term_insert
INSERT INTO recollect.search_terms (term) VALUES (?1) ON CONFLICT (owner, term) DO NOTHING

-- name: search_reached
UPDATE recollect.branches SET indexed_to = :position WHERE {this}

-- name: search_lower
UPDATE recollect.branches SET indexed_to = :position::int WHERE {this} AND indexed_to > :position::int

-- name: search_secure
SELECT 1 WHERE false

-- name: search_total
SELECT 0

-- name: search_optimize
SELECT 1 WHERE false

-- name: search_nudge
SELECT 1 WHERE false

-- name: search_nudge_back
SELECT 1 WHERE false

-- name: search_terms_sweep
SELECT recollect.search_sweep(:terms)

-- name: search_empty
DELETE FROM recollect.search_index WHERE owner = recollect.owner()

-- name: search_empty_terms
DELETE FROM recollect.search_terms WHERE owner = recollect.owner()

-- name: search_mend_titles
SELECT 1 WHERE false

-- name: search_empty_titles
DELETE FROM recollect.search_titles WHERE owner = recollect.owner()

-- name: search_restart
UPDATE recollect.branches SET indexed_to = 0 WHERE owner = recollect.owner() AND indexed_to > 0

-- name: search_retitle
UPDATE recollect.sessions SET title_changed = true WHERE owner = recollect.owner() AND title_changed IS NULL

-- name: search_verify
SELECT 1 WHERE false

-- name: search_sample
SELECT (tree << 20) | number, indexed_to FROM recollect.branches
WHERE owner = :owner AND indexed_to > fork_at ORDER BY tree DESC, number DESC LIMIT :limit

-- before: search_has
{seek}

-- name: search_has
SELECT 1 FROM recollect.search_index
WHERE {branch} AND position = :position AND (NOT {bypassed} OR words @@ (SELECT recollect.sought()))

-- name: search_count
SELECT recollect.search_count(:sought::text, :most::bigint)

-- before: search_terms_with
SELECT set_config('recollect.piece', '%' || :piece::text || CASE WHEN :ending::boolean THEN '' ELSE '%' END, true)

-- name: search_terms_with
SELECT term FROM recollect.search_terms
WHERE owner = recollect.owner() AND term LIKE (SELECT recollect.piece())
ORDER BY length(term), term LIMIT :limit

-- name: search_ranges
WITH RECURSIVE path (tree, number, parent, low, high) AS (
    SELECT b.tree, b.number, b.parent, b.fork_at, CASE WHEN s.branch = b.number THEN s.last ELSE b.last END
    FROM recollect.branches AS b JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
    WHERE b.tree = :session::bigint >> 20 AND b.session = (:session::bigint & 1048575)::int
    UNION
    SELECT b.tree, b.number, b.parent, b.fork_at, p.low
    FROM path AS p JOIN recollect.branches AS b ON b.tree = p.tree AND b.number = p.parent
)
SELECT (tree << 20) | number, min(low), max(high) FROM path GROUP BY tree, number

-- name: search_suits
SELECT 1 FROM recollect.sessions AS s
WHERE s.tree = :session::bigint >> 20 AND s.number = (:session::bigint & 1048575)::int AND {suits}

-- before: search_dense
SELECT set_config('recollect.sought', '', true), {walking}

-- name: search_dense
SELECT s.hits, s.candidates, s.sampled, s.mine, greatest(s.mine, c.reltuples)::float8,
    pg_relation_size('recollect.search_index') / current_setting('block_size')::bigint
FROM pg_class AS c CROSS JOIN (
    SELECT count(*) FILTER (WHERE words @@ :sought::tsquery) AS hits, count(*) FILTER (WHERE words @@ :loose::tsquery) AS candidates,
        count(*) AS sampled, count(*) FILTER (WHERE spread) * greatest(
            pg_relation_size('recollect.search_index') / current_setting('block_size')::float8 / 16, 1
        ) AS mine
    FROM (
        (SELECT words, false AS spread FROM recollect.search_index WHERE owner = recollect.owner()
            ORDER BY tree DESC, branch DESC, position DESC LIMIT :sample)
        UNION ALL
        (SELECT words, true FROM recollect.search_index
            WHERE ctid = ANY (recollect.search_spread(16, 16)) AND owner = recollect.owner() LIMIT :sample)
    ) AS sampled
) AS s
WHERE c.oid = 'recollect.search_index'::regclass

-- name: search_since
SELECT tree << 20 FROM (
    SELECT tree, sum(message_count) OVER (ORDER BY tree DESC, number DESC) AS newer FROM recollect.sessions
    WHERE owner = :owner
) AS counted WHERE newer >= :many::bigint LIMIT 1

-- before: search_newest
SELECT set_config('recollect.sought', :sought::text, true), {walking}

-- name: search_newest
{ranked}

-- before: search_messages
SELECT set_config('recollect.sought', :sought::text, true), set_config('enable_bitmapscan', 'on', true),
    set_config('enable_seqscan', 'on', true), set_config('enable_sort', 'on', true),
    set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true), {planned}, {roomy}

-- name: search_messages
{ranked}

-- before: search_few
SELECT set_config('recollect.sought', :sought::text, true), set_config('enable_bitmapscan', 'on', true),
    set_config('enable_sort', 'on', true), {one_by_one}

-- name: search_few
WITH {phrases}
SELECT (f.tree << 20) | f.branch, f.position, {rank}
FROM (
    (SELECT i.* FROM {placed} WHERE {among} AND {counts} AND NOT {bypassed})
    UNION ALL
    (
        SELECT i.* FROM {placed} WHERE {among} AND {counts} AND {bypassed} AND i.owner = recollect.owner()
            AND i.words @@ (SELECT recollect.sought())
    )
) AS f CROSS JOIN phrases AS p

-- name: search_hits
SELECT (m.tree << 20) | m.branch, m.position, b.number, m.role, m.created_at, m.blobs, m.parts::varchar,
    s.owner = :owner AND (s.deleted_at IS NOT NULL) = :deleted::boolean AND {suits}, {session}
FROM {listed}
CROSS JOIN LATERAL (
    SELECT * FROM recollect.messages AS n WHERE n.tree = h.tree AND n.branch = h.branch AND n.position = h.position OFFSET 0
) AS m
JOIN recollect.branches AS b ON b.tree = m.tree AND b.number = m.branch
LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
WHERE m.deleted_at IS NULL

-- name: search_hits_tools
WITH RECURSIVE path (tree, branch, position, number, parent, fork_at, high) AS (
    SELECT h.tree, h.branch, h.position, b.number, b.parent, b.fork_at, h.position
    FROM {listed} JOIN recollect.branches AS b ON b.tree = h.tree AND b.number = h.branch
    UNION ALL
    SELECT p.tree, p.branch, p.position, b.number, b.parent, b.fork_at, p.fork_at
    FROM path AS p JOIN recollect.branches AS b ON b.tree = p.tree AND b.number = p.parent
    WHERE p.fork_at > p.position - :near::int
)
SELECT (p.tree << 20) | p.branch, p.position, c.result_part, c.tool
FROM path AS p
CROSS JOIN LATERAL (
    SELECT n.result_part, n.tool FROM recollect.tool_calls AS n
    WHERE n.tree = p.tree AND n.message_branch = p.number
        AND n.message_position > greatest(p.fork_at, p.position - :near::int) AND n.message_position <= p.high
        AND n.branch = p.branch AND n.result = p.position
    OFFSET 0
) AS c

-- name: search_reaching
WITH RECURSIVE below (tree, number) AS (
    SELECT c.tree, c.number FROM recollect.branches AS c
    WHERE c.tree = :branch::bigint >> 20 AND c.parent = (:branch::bigint & 1048575)::int AND c.fork_at >= :position
    UNION
    SELECT c.tree, c.number FROM below AS p JOIN recollect.branches AS c ON c.tree = p.tree AND c.parent = p.number
)
SELECT {session}
FROM below AS p
JOIN recollect.branches AS b ON b.tree = p.tree AND b.number = p.number
JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
WHERE s.owner = :owner AND (s.deleted_at IS NOT NULL) = :deleted::boolean AND {suits}
ORDER BY s.active_at DESC LIMIT 1

-- before: search_titles_match
{seek}

-- name: search_titles_match
WITH {phrases}
SELECT 0, (f.tree << 20) | f.session, {rank}, {session}, s.created_at
FROM (
    SELECT * FROM recollect.search_titles WHERE NOT {bypassed}
    UNION ALL
    SELECT * FROM recollect.search_titles
    WHERE {bypassed} AND owner = recollect.owner() AND words @@ (SELECT recollect.sought())
) AS f
JOIN recollect.sessions AS s ON s.tree = f.tree AND s.number = f.session
CROSS JOIN phrases AS p
WHERE (:below::bigint IS NULL OR ((f.tree << 20) | f.session) < :below::bigint) AND ((f.tree << 20) | f.session) >= :low::bigint
    AND s.owner = :owner AND (s.deleted_at IS NOT NULL) = :deleted::boolean AND {suits}
    AND (:models::text IS NULL OR s.model = ANY ((SELECT recollect.listed(:models))::text[]))
    AND (:no_models::text IS NULL OR coalesce(s.model, '') <> ALL ((SELECT recollect.listed(:no_models))::text[]))
ORDER BY f.tree DESC, f.session DESC LIMIT nullif(:pool::bigint, -1)
