-- The policies of the index tables read the searched expression from a setting of the transaction (docs/internals/postgresql.md),
-- so it is set before a query. For a role that bypasses policies ({policies_bypassed}), the condition is in the query itself. Every writer
-- of the index takes one lock per owner, as in SQLite. A deleted row is gone with its transaction, so nothing has to be
-- overwritten or compacted afterwards.

-- shared: ranked_messages
-- The newest messages that match the searched expression, with their rank. One half is empty: with row-level security
-- the policy contains the expression, otherwise the query does.
WITH {ranking_phrases}
SELECT (f.tree << 20) | f.branch AS branch, f.position, {rank_expression} AS rank
FROM (
    (SELECT i.* {matching_rows} AND NOT {policies_bypassed} {newest_first})
    UNION ALL
    (
        SELECT i.* {matching_rows} AND {policies_bypassed} AND i.owner = recollect.owner()
            AND i.words @@ (SELECT recollect.sought())
        {newest_first}
    )
) AS f CROSS JOIN phrases AS p

-- shared: newest_first
-- Newest first, by key; -1 means unlimited.
ORDER BY i.tree DESC, i.branch DESC, i.position DESC LIMIT nullif(:pool::bigint, -1)

-- shared: matching_rows
-- The indexed messages within the bounds that pass the filters.
FROM {indexed_messages} WHERE {in_bounds} AND {passes_filters}

-- shared: indexed_messages
-- The index with the branch and the session of each message; a branch may have lost its session.
recollect.search_index AS i
JOIN recollect.branches AS b ON b.tree = i.tree AND b.number = i.branch
LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session

-- shared: passes_filters
-- Condition: the message is in the searched ranges, or its session passes the filters. If the session does not, the
-- message stays if a fork shares it; the fork is tested later.
CASE
    WHEN :ranges::json IS NOT NULL THEN EXISTS (
        SELECT 1 FROM json_array_elements(:ranges::json) AS r
        WHERE (r.value ->> 0)::bigint = (i.tree << 20) | i.branch AND (r.value ->> 1)::bigint < i.position
            AND (r.value ->> 2)::bigint >= i.position
    )
    WHEN s.owner <> :owner THEN false
    WHEN s.number IS NOT NULL AND (s.deleted_at IS NOT NULL) = :deleted::boolean AND {session_filters} THEN true
    ELSE EXISTS (SELECT 1 FROM recollect.branches AS c WHERE c.tree = b.tree AND c.parent = b.number OFFSET 0)
END
AND (:unfiltered::boolean OR EXISTS (
    SELECT 1 FROM recollect.messages AS m
    WHERE m.tree = i.tree AND m.branch = i.branch AND m.position = i.position
        AND (:since::bigint IS NULL OR m.created_at >= :since::bigint)
        AND (:until::bigint IS NULL OR m.created_at < :until::bigint)
        AND (:models::text IS NULL
            OR coalesce(m.model, s.model) = ANY ((SELECT recollect.listed(:models))::text[]))
        AND (:no_models::text IS NULL
            OR coalesce(m.model, s.model, '') <> ALL ((SELECT recollect.listed(:no_models))::text[]))
))

-- shared: session_filters
-- Conditions on the session of a hit; a parameter that is NULL does not filter.
(:delegates::boolean OR s.relation IS DISTINCT FROM 'delegate')
AND (:archived::boolean IS NULL OR (s.archived_at IS NOT NULL) = :archived::boolean)
AND (:pinned::boolean IS NULL OR (s.pinned_at IS NOT NULL) = :pinned::boolean)
AND (:channels::text IS NULL OR s.channel = ANY ((SELECT recollect.listed(:channels))::text[]))
AND (:no_channels::text IS NULL OR s.channel IS NULL
    OR s.channel <> ALL ((SELECT recollect.listed(:no_channels))::text[]))
AND (:statuses::text IS NULL OR s.status = ANY ((SELECT recollect.listed(:statuses))::text[]))
AND (:no_statuses::text IS NULL OR s.status <> ALL ((SELECT recollect.listed(:no_statuses))::text[]))
AND (:no_sessions::text IS NULL OR s.id NOT IN (
    SELECT j.value FROM json_array_elements_text(:no_sessions::text::json) AS j (value)
))
AND (:external_id::text IS NULL OR s.external_id = :external_id::text)
AND (:id_prefix::text IS NULL OR s.id >= :id_prefix::text AND s.id <= :id_limit::text)
AND (:labels::text IS NULL OR s.labels::jsonb ?& (SELECT recollect.listed(:labels))::text[])
AND (:no_labels::text IS NULL OR s.labels IS NULL OR NOT s.labels::jsonb ?| (SELECT recollect.listed(:no_labels))::text[])
AND (:metadata::text IS NULL OR NOT EXISTS (
    SELECT 1 FROM json_array_elements(:metadata::text::json) AS f (value)
    WHERE coalesce((recollect.decodable(s.metadata)::json -> (f.value ->> 0))::text, '')
        NOT IN (recollect.decodable(f.value ->> 1), recollect.decodable(f.value ->> 2)) OFFSET 0
))

-- shared: session_columns
-- The columns of the session that a hit shows.
s.id, s.title, s.channel, s.archived_at, s.deleted_at, s.parent_id

-- shared: hit_list
-- The hits of a page, from JSON.
(
    SELECT (e.value ->> 0)::bigint >> 20 AS tree, ((e.value ->> 0)::bigint & 1048575)::int AS branch,
        (e.value ->> 1)::int AS position
    FROM json_array_elements(:hits::json) AS e OFFSET 0
) AS h

-- shared: on_branch
-- Condition: the row belongs to the branch with the key :branch.
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int

-- shared: of_session
-- Condition: the row belongs to the session with the key :session.
tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int

-- shared: is_branch
-- Condition: the branch has the key :branch.
tree = :branch::bigint >> 20 AND number = (:branch::bigint & 1048575)::int

-- shared: index_rows
-- The messages of a span with their index entries, if any.
SELECT m.position, m.role, m.state, m.blobs, m.parts::varchar AS parts
FROM recollect.messages AS m
LEFT JOIN recollect.search_index AS i ON i.tree = m.tree AND i.branch = m.branch AND i.position = m.position
WHERE m.tree = :branch::bigint >> 20 AND m.branch = (:branch::bigint & 1048575)::int
    AND m.position > :low::bigint AND m.position <= :high::bigint

-- shared: changed_titles
-- The titles that are not indexed.
SELECT (tree << 20) | number AS session, title FROM recollect.sessions WHERE owner = :owner AND title_changed

-- shared: last_position
-- The last position of a branch; that of a head branch is in the session row.
CASE WHEN s.branch = b.number THEN s.last ELSE b.last END

-- shared: waiting_sessions
-- The sessions that may have messages to index.
FROM recollect.sessions AS s WHERE s.owner = :owner AND s.waiting

-- shared: index_mark
-- The generation mark of the index, stored as a term. It begins with a control character, which no word contains.
SELECT term AS mark FROM recollect.search_terms WHERE owner = recollect.owner() AND term < ' ' LIMIT 1

-- shared: index_lock
-- Lock the index of the owner until the transaction ends. One writer at a time, as in SQLite.
SELECT pg_advisory_xact_lock(hashtextextended('recollect search ' || recollect.owner(), 0))

-- shared: query_setting
-- The searched expression, for the policies of the index tables.
SELECT set_config('recollect.sought', :expression::text, true)

-- shared: index_scans_only
-- Settings that leave only nested loops over index scans in key order: the walk stops at the limit.
set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true),
set_config('enable_sort', 'off', true), set_config('enable_hashjoin', 'off', true),
set_config('enable_mergejoin', 'off', true), {custom_plan_setting}, set_config('max_parallel_workers_per_gather', '0', true)

-- shared: nested_loops_only
-- Settings for few rows: no plan that reads a whole table.
set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
set_config('enable_mergejoin', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)

-- shared: custom_plan_setting
-- A plan per execution, which knows how common the searched words are.
set_config('plan_cache_mode', 'force_custom_plan', true)

-- shared: work_mem_setting
-- At least 32 MB (33,554,432 bytes) of memory to sort many matches without temporary files; a higher setting stays.
CASE WHEN pg_size_bytes(current_setting('work_mem')) < 33554432 THEN set_config('work_mem', '32MB', true) END

-- shared: in_bounds
-- Conditions of a page: below the last hit, and not below the lower bound.
(:below_branch::bigint IS NULL OR (i.tree, i.branch, i.position)
    < (:below_branch::bigint >> 20, (:below_branch::bigint & 1048575)::int, :below_position::bigint))
AND (i.tree, i.branch, i.position)
    >= (:low_branch::bigint >> 20, (:low_branch::bigint & 1048575)::int, :low_position::bigint)

-- shared: in_bounds_after_match
-- The same, hidden from the planner by + 0, so that it does not walk the key instead of the word index.
(:below_branch::bigint IS NULL OR (i.tree + 0, i.branch, i.position)
    < (:below_branch::bigint >> 20, (:below_branch::bigint & 1048575)::int, :below_position::bigint))
AND (i.tree + 0, i.branch, i.position)
    >= (:low_branch::bigint >> 20, (:low_branch::bigint & 1048575)::int, :low_position::bigint)

-- shared: policies_bypassed
-- Condition: row-level security does not apply to this role.
NOT (SELECT row_security_active('recollect.search_index'))

-- shared: ranking_phrases
-- The phrases of the query and their weights as arrays. The plan mode is reset for the functions that run after it.
phrases AS MATERIALIZED (
    SELECT array_agg((p.value ->> 0)::tsquery) AS queries, array_agg((p.value ->> 1)::float8) AS weights,
        set_config('plan_cache_mode', 'auto', true)
    FROM json_array_elements(:weights::json) AS p
)

-- shared: rank_expression
-- The rank of a message; lower is better. Four phrases without a loop: most queries have no more.
-(
    recollect.search_fit(f.words, f.length, p.queries[1], p.weights[1])
    + recollect.search_fit(f.words, f.length, p.queries[2], p.weights[2])
    + recollect.search_fit(f.words, f.length, p.queries[3], p.weights[3])
    + recollect.search_fit(f.words, f.length, p.queries[4], p.weights[4])
    + CASE WHEN p.queries[5] IS NULL THEN 0 ELSE recollect.search_fits(f.words, f.length, p.queries[5:], p.weights[5:]) END
)

-- name: search_backlog_settings
-- Make the settings for search_backlog.
SELECT {nested_loops_only}

-- name: search_backlog
-- Return the index mark, the number of waiting sessions, and the branches and titles that are not indexed.
SELECT NULL::bigint AS branch, NULL::bigint AS session, NULL::int AS last, ({index_mark}) AS mark,
    EXISTS ({changed_titles}) AS titles,
    (SELECT count(*) FROM (SELECT {waiting_sessions} LIMIT :max_sessions::bigint) AS u) AS waiting_sessions
UNION ALL
SELECT (tree << 20) | number, (tree << 20) | session, last, NULL, NULL, NULL
FROM (
    SELECT b.tree, b.number, b.session, b.indexed_to, {last_position} AS last
    FROM (SELECT s.tree, s.number, s.branch, s.last {waiting_sessions} OFFSET 0) AS s
    JOIN recollect.branches AS b ON b.tree = s.tree AND b.session = s.number
    UNION ALL
    SELECT b.tree, b.number, NULL, b.indexed_to, (
        SELECT n.position FROM recollect.messages AS n WHERE n.tree = b.tree AND n.branch = b.number
        ORDER BY n.position DESC LIMIT 1
    )
    FROM recollect.branches AS b WHERE b.owner = :owner AND b.session IS NULL
) AS branch_ends
WHERE last > indexed_to
ORDER BY branch NULLS FIRST

-- name: search_waiting_sessions
-- Return a page of sessions with messages to index, and lock them.
SELECT (s.tree << 20) | s.number AS session {waiting_sessions} AND (s.tree, s.number) > (:after::bigint >> 20, (:after::bigint & 1048575)::int)
ORDER BY s.tree, s.number LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED

-- name: search_clear_waiting
-- Mark sessions as indexed if nothing of them is left to index.
UPDATE recollect.sessions AS s SET waiting = false
FROM (
    SELECT j.value::bigint >> 20 AS tree, (j.value::bigint & 1048575)::int AS number
    FROM json_array_elements_text(:keys::json) AS j (value) OFFSET 0
) AS k
WHERE s.tree = k.tree AND s.number = k.number AND NOT EXISTS (
    SELECT FROM recollect.branches AS b
    WHERE b.tree = s.tree AND b.session = s.number
        AND {last_position} > b.indexed_to OFFSET 0
)

-- name: search_changed_titles_lock
-- Lock the rows that search_changed_titles reads.
{index_lock}

-- name: search_changed_titles
-- Return a page of titles that changed since they were indexed.
{changed_titles} ORDER BY tree, number LIMIT :limit

-- name: search_title_indexed
-- Mark the title of a session as indexed.
UPDATE recollect.sessions SET title_changed = NULL
WHERE tree = :session::bigint >> 20 AND number = (:session::bigint & 1048575)::int

-- name: search_title_get_lock
-- Lock the rows that search_title_get reads.
{index_lock}

-- name: search_title_get
-- Return a title as it is indexed.
SELECT title FROM recollect.search_titles WHERE {of_session}

-- name: search_title_delete
-- Remove a title from the index.
DELETE FROM recollect.search_titles WHERE {of_session}

-- name: search_title_insert
-- Add a title to the index.
INSERT INTO recollect.search_titles (tree, session, title, words, length)
SELECT :session::bigint >> 20, (:session::bigint & 1048575)::int, :title::text, w.words, w.length
FROM recollect.search_words(:title::text, '', '', 'a') AS w

-- name: search_indexed_to_lock
-- Lock the rows that search_indexed_to reads.
{index_lock}

-- name: search_indexed_to
-- Return up to which position a branch is indexed without a gap.
SELECT indexed_to AS position FROM recollect.branches WHERE {is_branch}

-- name: search_unindexed
-- Return messages of a span that are not in the index.
{index_rows} AND i.position IS NULL
ORDER BY m.position LIMIT :limit

-- name: search_indexed_lock
-- Lock the rows that search_indexed reads.
{index_lock}

-- name: search_indexed
-- Return messages of a span that are in the index.
{index_rows} AND i.position IS NOT NULL
ORDER BY m.position LIMIT :limit

-- name: search_unfinished
-- Return a row if a message is still being written by an open turn.
SELECT 1 AS one FROM recollect.messages AS m
JOIN recollect.turns AS t ON t.tree = m.tree AND t.branch = m.branch AND t.position = m.turn
WHERE m.tree = :branch::bigint >> 20 AND m.branch = (:branch::bigint & 1048575)::int AND m.position = :position
    AND m.state IN ('pending', 'streaming') AND t.status = 'open'

-- name: search_tools
-- Return the tool names of results on a branch whose calls are in a span.
SELECT message_position AS position, result, result_part AS part, tool FROM recollect.tool_calls
WHERE tree = :call_branch::bigint >> 20 AND message_branch = (:call_branch::bigint & 1048575)::int
    AND message_position > :low::bigint AND message_position <= :high::bigint
    AND branch = (:branch::bigint & 1048575)::int AND result IS NOT NULL

-- name: search_insert
-- Add a message to the index.
INSERT INTO recollect.search_index (tree, branch, position, words, length)
SELECT ?1::bigint >> 20, (?1::bigint & 1048575)::int, ?2::int, w.words, w.length
FROM recollect.search_words(?3, ?4, ?5, ?6) AS w

-- name: search_delete
-- Remove a message from the index.
DELETE FROM recollect.search_index
WHERE tree = ?1::bigint >> 20 AND branch = (?1::bigint & 1048575)::int AND position = ?2::int

-- name: search_mark_lock
-- Lock the rows that search_mark reads.
{index_lock}

-- name: search_mark
-- Return the generation mark of the index, which changes each time that the index is cleared.
{index_mark}

-- name: search_term_insert
-- Add a word to the list of indexed words.
INSERT INTO recollect.search_terms (term) VALUES (?1) ON CONFLICT (owner, term) DO NOTHING

-- name: search_set_indexed_to
-- Set the position up to which a branch is indexed.
UPDATE recollect.branches SET indexed_to = :position WHERE {is_branch}

-- name: search_lower_indexed_to
-- Lower the position up to which a branch is indexed.
UPDATE recollect.branches SET indexed_to = :position::int WHERE {is_branch} AND indexed_to > :position::int

-- name: search_terms_delete_unused
-- Delete words that no message and no title has any more.
SELECT recollect.search_sweep(:terms)

-- name: search_clear
-- Delete all entries of the message index.
DELETE FROM recollect.search_index WHERE owner = recollect.owner()

-- name: search_clear_terms
-- Delete the list of indexed words.
DELETE FROM recollect.search_terms WHERE owner = recollect.owner()

-- name: search_clear_titles
-- Delete all entries of the title index.
DELETE FROM recollect.search_titles WHERE owner = recollect.owner()

-- name: search_reset_branches
-- Mark every branch as not indexed.
UPDATE recollect.branches SET indexed_to = 0 WHERE owner = recollect.owner() AND indexed_to > 0

-- name: search_reset_titles
-- Mark every title as not indexed.
UPDATE recollect.sessions SET title_changed = true WHERE owner = recollect.owner() AND title_changed IS NULL

-- name: search_sample
-- Return the last indexed message of some branches, for a check.
SELECT (tree << 20) | number AS branch, indexed_to AS position FROM recollect.branches
WHERE owner = :owner AND indexed_to > fork_at ORDER BY tree DESC, number DESC LIMIT :limit

-- name: search_contains_settings
-- Make the settings for search_contains.
{query_setting}

-- name: search_contains
-- Return a row if the index finds a message by an expression.
SELECT 1 AS one FROM recollect.search_index
WHERE {on_branch} AND position = :position AND (NOT {policies_bypassed} OR words @@ (SELECT recollect.sought()))

-- name: search_count
-- Count the messages that match an expression, up to a limit.
SELECT recollect.search_count(:expression::text, :max_count::bigint) AS matches

-- name: search_terms_with_settings
-- Make the settings for search_terms_with.
SELECT set_config('recollect.piece', '%' || :piece::text || CASE WHEN :ending::boolean THEN '' ELSE '%' END, true)

-- name: search_terms_with
-- Return indexed words that contain a piece, shortest first.
SELECT term FROM recollect.search_terms
WHERE owner = recollect.owner() AND term LIKE (SELECT recollect.piece())
ORDER BY length(term), term LIMIT :limit

-- name: search_ranges
-- Return the branch spans that a session reaches, on all its branches.
WITH RECURSIVE path (tree, number, parent, low, high) AS (
    SELECT b.tree, b.number, b.parent, b.fork_at, CASE WHEN s.branch = b.number THEN s.last ELSE b.last END
    FROM recollect.branches AS b JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
    WHERE b.tree = :session::bigint >> 20 AND b.session = (:session::bigint & 1048575)::int
    UNION
    SELECT b.tree, b.number, b.parent, b.fork_at, p.low
    FROM path AS p JOIN recollect.branches AS b ON b.tree = p.tree AND b.number = p.parent
)
SELECT (tree << 20) | number AS branch, min(low) AS low, max(high) AS high FROM path GROUP BY tree, number

-- name: search_session_matches
-- Return a row if a session passes the filters of a search.
SELECT 1 AS one FROM recollect.sessions AS s
WHERE s.tree = :session::bigint >> 20 AND s.number = (:session::bigint & 1048575)::int AND {session_filters}

-- name: search_density_settings
-- Make the settings for search_density.
SELECT set_config('recollect.sought', '', true), {index_scans_only}

-- name: search_density
-- Estimate from a sample how many messages match. The sample is the newest :sample messages and those
-- of 16 pages that are spread evenly over the table; the latter also show which share of the table is the owner's.
SELECT s.hits, s.candidates, s.sample_size, s.own_total, greatest(s.own_total, c.reltuples)::float8 AS total,
    pg_relation_size('recollect.search_index') / current_setting('block_size')::bigint AS pages
FROM pg_class AS c CROSS JOIN (
    SELECT count(*) FILTER (WHERE words @@ :expression::tsquery) AS hits, count(*) FILTER (WHERE words @@ :loose_expression::tsquery) AS candidates,
        count(*) AS sample_size, count(*) FILTER (WHERE is_spread) * greatest(
            pg_relation_size('recollect.search_index') / current_setting('block_size')::float8 / 16, 1
        ) AS own_total
    FROM (
        (SELECT words, false AS is_spread FROM recollect.search_index WHERE owner = recollect.owner()
            ORDER BY tree DESC, branch DESC, position DESC LIMIT :sample)
        UNION ALL
        (SELECT words, true FROM recollect.search_index
            WHERE ctid = ANY (recollect.search_spread(16, 16)) AND owner = recollect.owner() LIMIT :sample)
    ) AS sample_rows
) AS s
WHERE c.oid = 'recollect.search_index'::regclass

-- name: search_newest_start
-- Return the oldest tree that holds some of the newest messages of an owner.
SELECT tree << 20 AS low_branch FROM (
    SELECT tree, sum(message_count) OVER (ORDER BY tree DESC, number DESC) AS newer_messages FROM recollect.sessions
    WHERE owner = :owner
) AS running_totals WHERE newer_messages >= :min_messages::bigint LIMIT 1

-- name: search_newest_settings
-- Make the settings for search_newest.
SELECT set_config('recollect.sought', :expression::text, true), {index_scans_only}

-- name: search_newest
-- Return the newest messages that match, by walking back from the newest.
{ranked_messages}

-- name: search_messages_settings
-- Make the settings for search_messages.
SELECT set_config('recollect.sought', :expression::text, true), set_config('enable_bitmapscan', 'on', true),
    set_config('enable_seqscan', 'on', true), set_config('enable_sort', 'on', true),
    set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true), {custom_plan_setting}, {work_mem_setting}

-- name: search_messages
-- Return the newest messages that match, with their rank.
{ranked_messages}

-- name: search_rare_settings
-- Make the settings for search_rare.
SELECT set_config('recollect.sought', :expression::text, true), set_config('enable_bitmapscan', 'on', true),
    set_config('enable_sort', 'on', true), {nested_loops_only}

-- name: search_rare
-- Return messages that match words which few messages have, with their rank.
WITH {ranking_phrases}
SELECT (f.tree << 20) | f.branch AS branch, f.position, {rank_expression} AS rank
FROM (
    (SELECT i.* FROM {indexed_messages} WHERE {in_bounds_after_match} AND {passes_filters} AND NOT {policies_bypassed})
    UNION ALL
    (
        SELECT i.* FROM {indexed_messages} WHERE {in_bounds_after_match} AND {passes_filters} AND {policies_bypassed}
            AND i.owner = recollect.owner() AND i.words @@ (SELECT recollect.sought())
    )
) AS f CROSS JOIN phrases AS p

-- name: search_hits
-- Return the messages of hits and the sessions that they belong to.
SELECT (m.tree << 20) | m.branch AS branch, m.position, b.number, m.role, m.created_at, m.blobs, m.parts::varchar AS parts,
    s.owner = :owner AND (s.deleted_at IS NOT NULL) = :deleted::boolean AND {session_filters} AS session_matches,
    {session_columns}
FROM {hit_list}
CROSS JOIN LATERAL (
    SELECT * FROM recollect.messages AS n WHERE n.tree = h.tree AND n.branch = h.branch AND n.position = h.position OFFSET 0
) AS m
JOIN recollect.branches AS b ON b.tree = m.tree AND b.number = m.branch
LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
WHERE m.deleted_at IS NULL

-- name: search_hits_tools
-- Return the tool names of the tool results among hits.
WITH RECURSIVE path (tree, branch, position, number, parent, fork_at, high) AS (
    SELECT h.tree, h.branch, h.position, b.number, b.parent, b.fork_at, h.position
    FROM {hit_list} JOIN recollect.branches AS b ON b.tree = h.tree AND b.number = h.branch
    UNION ALL
    SELECT p.tree, p.branch, p.position, b.number, b.parent, b.fork_at, p.fork_at
    FROM path AS p JOIN recollect.branches AS b ON b.tree = p.tree AND b.number = p.parent
    WHERE p.fork_at > p.position - :call_distance::int
)
SELECT (p.tree << 20) | p.branch AS branch, p.position, c.result_part AS part, c.tool
FROM path AS p
CROSS JOIN LATERAL (
    SELECT n.result_part, n.tool FROM recollect.tool_calls AS n
    WHERE n.tree = p.tree AND n.message_branch = p.number
        AND n.message_position > greatest(p.fork_at, p.position - :call_distance::int) AND n.message_position <= p.high
        AND n.branch = p.branch AND n.result = p.position
    OFFSET 0
) AS c

-- name: search_sharing_session
-- Return a session that shares a message and passes the filters of a search.
WITH RECURSIVE descendants (tree, number) AS (
    SELECT c.tree, c.number FROM recollect.branches AS c
    WHERE c.tree = :branch::bigint >> 20 AND c.parent = (:branch::bigint & 1048575)::int AND c.fork_at >= :position
    UNION
    SELECT c.tree, c.number FROM descendants AS p JOIN recollect.branches AS c ON c.tree = p.tree AND c.parent = p.number
)
SELECT {session_columns}
FROM descendants AS p
JOIN recollect.branches AS b ON b.tree = p.tree AND b.number = p.number
JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
WHERE s.owner = :owner AND (s.deleted_at IS NOT NULL) = :deleted::boolean AND {session_filters}
ORDER BY s.active_at DESC LIMIT 1

-- name: search_titles_match_settings
-- Make the settings for search_titles_match.
{query_setting}

-- name: search_titles_match
-- Return the titles that match, with their rank.
WITH {ranking_phrases}
SELECT (f.tree << 20) | f.session AS session, {rank_expression} AS rank, {session_columns}, s.created_at
FROM (
    SELECT * FROM recollect.search_titles WHERE NOT {policies_bypassed}
    UNION ALL
    SELECT * FROM recollect.search_titles
    WHERE {policies_bypassed} AND owner = recollect.owner() AND words @@ (SELECT recollect.sought())
) AS f
JOIN recollect.sessions AS s ON s.tree = f.tree AND s.number = f.session
CROSS JOIN phrases AS p
WHERE (:below::bigint IS NULL OR ((f.tree << 20) | f.session) < :below::bigint) AND ((f.tree << 20) | f.session) >= :low::bigint
    AND s.owner = :owner AND (s.deleted_at IS NOT NULL) = :deleted::boolean AND {session_filters}
    AND (:models::text IS NULL OR s.model = ANY ((SELECT recollect.listed(:models))::text[]))
    AND (:no_models::text IS NULL OR coalesce(s.model, '') <> ALL ((SELECT recollect.listed(:no_models))::text[]))
ORDER BY f.tree DESC, f.session DESC LIMIT nullif(:pool::bigint, -1)
