-- Views for people who query the database with SQL: the same data with the table and column names that the schema of a chat
-- application usually has, as in a SQLite file. The id of a message is tree.branch.position. A view reads its tables with the
-- privileges of the role that created it, so each view filters by owner itself.

-- Convert text to JSON that PostgreSQL can decode: NUL and unpaired surrogates, which its text cannot hold, become U+FFFD.
CREATE OR REPLACE FUNCTION recollect.readable(value text) RETURNS json LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN strpos(value, '\u') = 0 THEN value ELSE
        regexp_replace(
            regexp_replace(
                regexp_replace(value, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g'),
                '(?<!\\)((?:\\\\)*)\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})', '\1\\ufffd', 'g'
            ),
            '(?<!\\u[dD][89abAB][0-9a-fA-F]{2})(?<!\\)((?:\\\\)*)\\u[dD][c-fC-F][0-9a-fA-F]{2}', '\1\\ufffd', 'g'
        )
    END::json
$$;

CREATE OR REPLACE VIEW recollect.chat_sessions AS
SELECT
    s.id,
    s.title,
    s.created_at,
    s.updated_at,
    s.last_message_at,
    s.provider_config AS provider_config_id,
    s.model AS model_id,
    s.data_schema_version,
    s.message_count,
    s.archived_at,
    s.pinned_at,
    c.summary,
    c.created_at AS summary_updated_at,
    s.color,
    s.metadata,
    s.deleted_at
FROM recollect.sessions AS s
LEFT JOIN LATERAL (
    SELECT n.summary, n.created_at FROM recollect.compactions AS n
    WHERE n.tree = s.tree AND n.branch = s.branch AND n.undone_at IS NULL ORDER BY n.number DESC LIMIT 1
) AS c ON true
WHERE s.owner = (SELECT recollect.owner());

CREATE OR REPLACE VIEW recollect.chat_messages AS
SELECT
    m.tree || '.' || m.branch || '.' || m.position AS id,
    s.id AS session_id,
    m.role,
    coalesce(m.state, 'completed') AS state,
    m.position AS sequence,
    m.created_at,
    coalesce(m.completed_at, CASE WHEN m.state IS NULL THEN m.created_at END) AS completed_at,
    m.input_tokens,
    m.output_tokens,
    m.error,
    m.metadata,
    CASE
        WHEN m.position > b.fork_at + 1 THEN m.tree || '.' || m.branch || '.' || (m.position - 1)
        WHEN b.parent IS NOT NULL THEN m.tree || '.' || b.parent || '.' || b.fork_at
    END AS parent_message_id,
    m.deleted_at
FROM recollect.messages AS m
JOIN recollect.branches AS b ON b.tree = m.tree AND b.number = m.branch
LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
WHERE m.owner = (SELECT recollect.owner());

CREATE OR REPLACE VIEW recollect.message_parts AS
SELECT
    m.tree || '.' || m.branch || '.' || m.position || '.' || (j.place - 1) AS id,
    m.tree || '.' || m.branch || '.' || m.position AS message_id,
    s.id AS session_id,
    j.value ->> 'kind' AS kind,
    j.place - 1 AS sequence,
    coalesce(
        j.value ->> 'text',
        (SELECT string_agg(c.value ->> 'text', chr(10)) FROM json_array_elements(
            CASE json_typeof(j.value -> 'content') WHEN 'array' THEN j.value -> 'content' END) AS c (value)
            WHERE json_typeof(c.value) = 'object')
    ) AS content_text,
    coalesce(
        (j.value -> 'arguments')::text, j.value ->> 'arguments_text', (j.value -> 'data')::text,
        (j.value -> 'content')::text, (j.value -> 'native')::text
    ) AS content_json,
    j.value ->> 'mime_type' AS mime_type,
    (j.value ->> 'size')::bigint AS size_bytes,
    j.value ->> 'call_id' AS tool_call_id,
    coalesce(j.value ->> 'tool', r.tool) AS tool_name,
    coalesce(t.status, CASE WHEN j.value ->> 'kind' = 'tool_result'
        THEN coalesce(j.value ->> 'status', 'success') END) AS status,
    coalesce(j.value ->> 'error_code', t.error_code) AS error_code,
    coalesce(j.value ->> 'error_message', t.error_message) AS error_message,
    r.tree || '.' || r.message_branch || '.' || r.message_position || '.' || r.part AS related_part_id,
    (j.value -> 'metadata')::text AS metadata,
    m.created_at,
    coalesce(m.completed_at, m.created_at) AS updated_at
FROM recollect.messages AS m
JOIN recollect.branches AS b ON b.tree = m.tree AND b.number = m.branch
CROSS JOIN LATERAL json_array_elements(recollect.readable(m.parts)) WITH ORDINALITY AS j (value, place)
LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
LEFT JOIN recollect.tool_calls AS t ON t.tree = m.tree AND t.message_branch = m.branch AND t.message_position = m.position
    AND t.part = j.place - 1 AND t.branch = m.branch
LEFT JOIN LATERAL (
    SELECT c.tree, c.message_branch, c.message_position, c.part, c.tool FROM recollect.tool_calls AS c
    WHERE j.value ->> 'kind' = 'tool_result' AND c.tree = m.tree
        AND (c.message_branch = m.branch OR (c.message_branch = b.parent AND c.message_position <= b.fork_at))
        AND c.branch = m.branch AND c.result = m.position AND c.result_part = j.place - 1
    ORDER BY c.message_branch = m.branch DESC, c.message_position DESC LIMIT 1
) AS r ON true
WHERE m.owner = (SELECT recollect.owner());

CREATE OR REPLACE VIEW recollect.tool_invocations AS
SELECT
    t.tree || '.' || t.message_branch || '.' || t.message_position || '.' || t.part || '.' || t.branch AS id,
    s.id AS session_id,
    t.tree || '.' || t.message_branch || '.' || t.message_position AS message_id,
    t.tree || '.' || t.message_branch || '.' || t.message_position || '.' || t.part AS invocation_part_id,
    t.tree || '.' || t.branch || '.' || t.result || '.' || t.result_part AS result_part_id,
    t.call_id AS tool_call_id,
    t.tool AS tool_name,
    coalesce(p.value ->> 'arguments_text', (p.value -> 'arguments')::text) AS input_json,
    coalesce(q.value ->> 'text', (q.value -> 'data')::text, (q.value -> 'content')::text) AS output_json,
    t.status,
    t.error_code,
    t.error_message,
    t.latency_ms,
    t.started_at,
    t.completed_at,
    t.created_at,
    coalesce(t.completed_at, t.started_at, t.created_at) AS updated_at
FROM recollect.tool_calls AS t
JOIN recollect.branches AS a ON a.tree = t.tree AND a.number = t.branch
JOIN recollect.messages AS m ON m.tree = t.tree AND m.branch = t.message_branch AND m.position = t.message_position
LEFT JOIN recollect.messages AS o ON o.tree = t.tree AND o.branch = t.branch AND o.position = t.result
LEFT JOIN recollect.sessions AS s ON s.tree = a.tree AND s.number = a.session
CROSS JOIN LATERAL (SELECT recollect.readable(m.parts) -> t.part) AS p (value)
CROSS JOIN LATERAL (SELECT recollect.readable(o.parts) -> t.result_part) AS q (value)
WHERE t.owner = (SELECT recollect.owner());

CREATE OR REPLACE VIEW recollect.session_snapshots AS
SELECT
    n.tree || '.' || n.session || '.' || n.number AS id,
    s.id AS session_id,
    n.kind,
    n.content AS content_json,
    n.tree || '.' || n.branch || '.' || n.position AS message_cutoff_id,
    n.tokens AS token_count,
    n.created_at,
    n.updated_at
FROM recollect.snapshots AS n
JOIN recollect.sessions AS s ON s.tree = n.tree AND s.number = n.session
WHERE n.owner = (SELECT recollect.owner());

-- Functions for search.

-- Return a folded text with spaces between its tokens. Text that is not ASCII already has them. U+0010 is the escape character for NUL
-- and for itself.
CREATE FUNCTION recollect.search_spaced(folded text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN octet_length(folded) <> length(folded) THEN folded
        ELSE regexp_replace(replace(replace(folded, E'\x100', ' '), E'\x10p', ' '), '[^a-z0-9 ]+', ' ', 'g') END
$$;

CREATE OR REPLACE FUNCTION recollect.search_tokens(folded text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT string_to_array(recollect.search_spaced(folded), ' ')
$$;

-- PostgreSQL's own parser (to_tsvector) creates a tsvector ten times as fast, and the same one for ASCII words. It is not used if it
-- would split a word (it parses 12e3a as a number and a word), if a word must be cut, or if a text has more positions than a
-- tsvector stores.
ALTER FUNCTION recollect.search_words(text, text, text, text) RENAME TO search_words_placed;

CREATE FUNCTION recollect.search_words_parsed(said text, calls text, results text) RETURNS tsvector
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN calls = '' AND results = '' THEN s.words
        ELSE ts_delete(s.words || '''='':1'::tsvector || c.words || '''='':1'::tsvector || r.words, '=') END
    FROM (SELECT setweight(to_tsvector('pg_catalog.simple', recollect.search_spaced(said)), 'A')) AS s (words)
    CROSS JOIN (SELECT setweight(to_tsvector('pg_catalog.simple', recollect.search_spaced(calls)), 'B')) AS c (words)
    CROSS JOIN (SELECT setweight(to_tsvector('pg_catalog.simple', recollect.search_spaced(results)), 'C')) AS r (words)
$$;

CREATE FUNCTION recollect.search_words(
    said text, calls text, results text, tags text, OUT words tsvector, OUT length integer
) LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    whole text := concat(said, ' ', calls, ' ', results);
    most integer;
    farthest integer;
BEGIN
    IF octet_length(whole) = length(whole) AND octet_length(whole) < 100000
        AND whole !~ '(?:^|[^a-z0-9])[0-9]+e[0-9]+[a-z]|[a-z0-9]{201}' THEN
        words := recollect.search_words_parsed(said, calls, results);
        SELECT coalesce(sum(cardinality(w.positions)), 0), coalesce(max(cardinality(w.positions)), 0),
            coalesce(max(w.positions[cardinality(w.positions)]), 0)
        INTO length, most, farthest FROM unnest(words) AS w;
        IF most < 255 AND farthest < 16383 THEN
            words := words || array_to_tsvector(ARRAY(
                SELECT '=' || recollect.search_token(t.tag) FROM unnest(string_to_array(tags, ' ')) AS t (tag)
                UNION ALL SELECT '=o' || md5(recollect.owner()) WHERE recollect.owner() <> ''
            ));
            RETURN;
        END IF;
    END IF;
    SELECT p.words, p.length INTO words, length FROM recollect.search_words_placed(said, calls, results, tags) AS p;
END $$;

-- Rank a message with BM25. The caller passes the weight of the phrase, the average length is a constant (100 tokens), and each
-- further position of a word counts less. PostgreSQL inlines a single expression into the query; a function that is called for each
-- row takes 15 times as long. (x / (x + y) is written as 1 - y / (x + y), so that x is computed once.)
CREATE FUNCTION recollect.search_fit(words tsvector, length integer, sought tsquery, weight float8) RETURNS float8
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(weight * 2.2 * (1 - 1.2 * (0.25 + 0.0075 * length) / (
        1.6449 * ts_rank('{0.2, 0.4, 0.6, 1}', words, sought)::float8 + 1.2 * (0.25 + 0.0075 * length)
    )), 0)
$$;

CREATE FUNCTION recollect.search_fits(words tsvector, length integer, sought tsquery[], weights float8[]) RETURNS float8
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(sum(recollect.search_fit(words, length, p.sought, p.weight)), 0)
    FROM unnest(sought, weights) AS p (sought, weight)
$$;

DROP FUNCTION recollect.search_rank(tsvector, integer, tsquery[], float8[]);

-- Return row locations (ctid) that are spread evenly over the table search_index; some of them contain no row. TABLESAMPLE would
-- iterate over the numbers of all pages.
CREATE FUNCTION recollect.search_spread(many integer, each integer) RETURNS tid[] LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT array_agg(DISTINCT format('(%s,%s)', (2 * page.number + 1) * size.pages / (2 * many), line.number)::tid)
    FROM (SELECT pg_relation_size('recollect.search_index') / current_setting('block_size')::bigint) AS size (pages)
    CROSS JOIN generate_series(0, many - 1) AS page (number)
    CROSS JOIN generate_series(1, each) AS line (number)
$$;

-- Estimate from a small sample of rows whether very many rows match, to avoid counting them in the index, which visits every match.
CREATE FUNCTION recollect.search_common(looked tsquery, most bigint) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = off AS $$
DECLARE
    pages bigint := pg_relation_size('recollect.search_index') / current_setting('block_size')::bigint;
    hits bigint;
    spread bigint;
BEGIN
    IF pages < 500 THEN
        RETURN false;
    END IF;
    PERFORM set_config('recollect.sought', '', true);
    SELECT count(*), count(DISTINCT i.page) INTO hits, spread FROM (
        SELECT (ctid::text::point)[0] AS page, words FROM recollect.search_index
        WHERE ctid = ANY (recollect.search_spread(24, 16)) AND owner = recollect.owner() OFFSET 0
    ) AS i WHERE i.words @@ looked;
    RETURN hits >= 4 AND spread >= 3 AND hits * pages / 24 >= 4 * most;
END $$;

-- Return the number of messages that match, counted up to a maximum.
CREATE FUNCTION recollect.search_count(looked text, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF recollect.search_common(looked::tsquery, most) THEN
        RETURN most;
    END IF;
    PERFORM set_config('recollect.sought', looked, true);
    IF row_security_active('recollect.search_index') THEN
        RETURN (SELECT count(*) FROM (SELECT FROM recollect.search_index LIMIT most) AS found);
    END IF;
    RETURN (
        SELECT count(*) FROM (
            SELECT FROM recollect.search_index
            WHERE owner = recollect.owner() AND words @@ (SELECT recollect.sought()) LIMIT most
        ) AS found
    );
END $$;

-- Return those of the passed words that occur in a sample of the rows that match the search; NULL if no row matches. Only the GIN
-- indexes are allowed: for words that do not occur, another plan would read the whole table.
CREATE FUNCTION recollect.search_held(asked text[]) RETURNS text[] LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off AS $$
BEGIN
    IF row_security_active('recollect.search_index') THEN
        RETURN (
            SELECT array_agg(DISTINCT l.word) FROM (
                (SELECT words FROM recollect.search_index LIMIT 200)
                UNION ALL (SELECT words FROM recollect.search_titles LIMIT 200)
            ) AS r CROSS JOIN LATERAL unnest(tsvector_to_array(r.words)) AS l (word) WHERE l.word = ANY (asked)
        );
    END IF;
    RETURN (
        SELECT array_agg(DISTINCT l.word) FROM (
            (SELECT words FROM recollect.search_index
                WHERE words @@ (SELECT recollect.sought()) AND owner = recollect.owner() LIMIT 200)
            UNION ALL (SELECT words FROM recollect.search_titles
                WHERE words @@ (SELECT recollect.sought()) AND owner = recollect.owner() LIMIT 200)
        ) AS r CROSS JOIN LATERAL unnest(tsvector_to_array(r.words)) AS l (word) WHERE l.word = ANY (asked)
    );
END $$;

-- Delete those of the passed words that no message and no title contains any more. The newest messages contain the common words, so
-- these need no lookup. The others are searched for 500 at a time; each round leaves out the words that were already found, until no
-- row contains any of the rest.
CREATE OR REPLACE FUNCTION recollect.search_sweep(words text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    asked text[];
    held text[];
    gone integer := 0;
BEGIN
    FOR asked IN
        SELECT array_agg(w.word) FROM (
            SELECT word, row_number() OVER () / 500 AS part FROM (
                SELECT value FROM json_array_elements_text(words::json)
                EXCEPT SELECT unnest(tsvector_to_array(newest.words)) FROM (
                    SELECT i.words FROM recollect.search_index AS i WHERE i.owner = recollect.owner()
                    ORDER BY i.tree DESC, i.branch DESC, i.position DESC LIMIT 100
                ) AS newest
            ) AS e (word)
        ) AS w GROUP BY w.part
    LOOP
        LOOP
            PERFORM set_config('recollect.sought', '''' || array_to_string(asked, ''' | ''') || '''', true);
            held := recollect.search_held(asked);
            EXIT WHEN held IS NULL;
            asked := ARRAY(SELECT unnest(asked) EXCEPT SELECT unnest(held));
            EXIT WHEN asked = '{}';
        END LOOP;
        PERFORM set_config('recollect.sought', '', true);
        DELETE FROM recollect.search_terms WHERE owner = recollect.owner() AND term = ANY (asked);
        gone := gone + cardinality(asked);
    END LOOP;
    RETURN gone;
END $$;

DROP FUNCTION recollect.search_has();
