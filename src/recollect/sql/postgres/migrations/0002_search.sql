-- Full-text search. These tables are derived from the messages and titles and can be rebuilt from them.

ALTER TABLE recollect.sessions ADD COLUMN title_changed boolean DEFAULT true;

CREATE INDEX sessions_title_changed ON recollect.sessions (owner) WHERE title_changed;

-- The lexemes of each message with their positions. The weight is A in the text, B in tool calls, C in tool results. Lexemes that
-- begin with = are not words: =a is in every row, =r... is the role, =t... a tool, =o... the owner. A tsvector stays in its row as long
-- as the row fits into a page: fetching it from the TOAST table takes five times as long as matching it.
CREATE TABLE recollect.search_index (
    tree bigint NOT NULL,
    branch integer NOT NULL,
    position integer NOT NULL,
    length integer NOT NULL,
    owner text COLLATE "C" NOT NULL DEFAULT recollect.owner(),
    words tsvector NOT NULL,
    PRIMARY KEY (tree, branch, position)
) WITH (toast_tuple_target = 8160);

CREATE INDEX search_index_words ON recollect.search_index USING gin (words) WITH (gin_pending_list_limit = 512);

CREATE TABLE recollect.search_titles (
    tree bigint NOT NULL,
    session integer NOT NULL,
    length integer NOT NULL,
    owner text COLLATE "C" NOT NULL DEFAULT recollect.owner(),
    title text COLLATE "C" NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (tree, session)
);

CREATE INDEX search_titles_words ON recollect.search_titles USING gin (words) WITH (gin_pending_list_limit = 512);

-- The distinct words of both tables, to find the words that contain a substring.
CREATE TABLE recollect.search_terms (
    owner text COLLATE "C" NOT NULL DEFAULT recollect.owner(),
    term text COLLATE "C" NOT NULL,
    PRIMARY KEY (owner, term)
);

-- A trigram index for substrings, if the extension pg_trgm exists or can be created. Without it, a search reads the words of the
-- owner one after another.
DO $$
DECLARE
    place text;
BEGIN
    BEGIN
        CREATE EXTENSION IF NOT EXISTS pg_trgm;
    EXCEPTION WHEN OTHERS THEN
        NULL;
    END;
    SELECT n.nspname INTO place
    FROM pg_opclass AS c JOIN pg_namespace AS n ON n.oid = c.opcnamespace
    WHERE c.opcname = 'gin_trgm_ops';
    IF place IS NOT NULL THEN
        EXECUTE format('CREATE INDEX search_terms_pieces ON recollect.search_terms USING gin (term %I.gin_trgm_ops)', place);
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END $$;

-- The search condition, from settings of the transaction: a tsquery, and a LIKE pattern for a substring of a word.
CREATE FUNCTION recollect.sought() RETURNS tsquery LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN recollect.owner() = '' THEN q.words
        ELSE ('''=o' || md5(recollect.owner()) || '''')::tsquery && q.words END
    FROM (SELECT coalesce(nullif(current_setting('recollect.sought', true), ''), '''=a''')::tsquery) AS q (words)
$$;

CREATE FUNCTION recollect.piece() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT coalesce(nullif(current_setting('recollect.piece', true), ''), '%')
$$;

-- An owner sees only its own rows, and of these only the ones that match the search; all of them if the setting is empty. The search
-- condition is in the policy, because next to a policy PostgreSQL does not use an index for a condition with @@ or LIKE: these
-- operators are not leakproof, so they could reveal rows that the policy hides. As part of the policy, the condition uses the index.
DO $$
DECLARE
    name text;
    condition text;
BEGIN
    FOREACH name IN ARRAY ARRAY['search_index', 'search_titles', 'search_terms'] LOOP
        condition := CASE name WHEN 'search_terms' THEN 'term LIKE (SELECT recollect.piece())'
            ELSE 'words @@ (SELECT recollect.sought())' END;
        EXECUTE format('ALTER TABLE recollect.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE recollect.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY %I ON recollect.%I USING (owner = (SELECT recollect.owner()) AND %s) '
            'WITH CHECK (owner = (SELECT recollect.owner()))',
            name || '_owner', name, condition
        );
    END LOOP;
END $$;

-- Return a token as the index stores it: a token of more than 200 characters is cut to 160, followed by a digest of the whole token.
CREATE FUNCTION recollect.search_token(token text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN length(token) > 200 THEN left(token, 160) || md5(token) ELSE token END
$$;

-- Return the tokens of a folded text, in order. Text that is not ASCII already has spaces between its tokens. U+0010 is the escape
-- character for NUL and for itself.
CREATE FUNCTION recollect.search_tokens(folded text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT string_to_array(
        translate(
            replace(replace(folded, E'\x100', ' '), E'\x10p', ' '),
            E'\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f!"#$%&''()*+,-./:;<=>?@[\\]^_`{|}~\x7f',
            repeat(' ', 64)
        ),
        ' '
    )
$$;

-- A tsvector holds one megabyte, positions up to 16,383, and 255 positions per lexeme. Tokens beyond these limits are stored without
-- a position. Two adjacent tokens of which one has no position are also stored as a pair, =+one two. Entries that exceed the size
-- are left out, pairs first. Tokens of different columns are not adjacent.
CREATE FUNCTION recollect.search_words(
    said text, calls text, results text, tags text, OUT words tsvector, OUT length integer
) LANGUAGE sql STABLE PARALLEL SAFE AS $$
    WITH tokens AS (
        SELECT recollect.search_token(t.token) AS token, c.weight,
            row_number() OVER (ORDER BY c.place, t.place) + c.place AS place
        FROM (VALUES (0, 'A', said), (1, 'B', calls), (2, 'C', results)) AS c (place, weight, folded)
        CROSS JOIN LATERAL unnest(recollect.search_tokens(c.folded)) WITH ORDINALITY AS t (token, place)
        WHERE t.token <> ''
    ), entries AS (
        SELECT '=' || recollect.search_token(t.tag) AS token, 0::bigint AS first, NULL AS places, 0::bigint AS count
        FROM unnest(string_to_array(tags, ' ')) AS t (tag)
        UNION ALL
        SELECT '=o' || md5(recollect.owner()), 0, NULL, 0 WHERE recollect.owner() <> ''
        UNION ALL
        SELECT token, min(place), string_agg(place || weight, ',' ORDER BY place) FILTER (WHERE place < 16383),
            count(*) FILTER (WHERE place < 16383)
        FROM tokens GROUP BY token
        UNION ALL
        SELECT DISTINCT ON (pair) pair, 1::bigint << 40, NULL, 0::bigint
        FROM (
            SELECT '=+' || token || ' ' || lead(token) OVER (ORDER BY place) AS pair,
                lead(place) OVER (ORDER BY place) = place + 1 AS follows,
                not_placed OR lead(not_placed) OVER (ORDER BY place) AS not_placed
            FROM (
                SELECT token, place,
                    place >= 16383 OR row_number() OVER (PARTITION BY token ORDER BY place) > 255 AS not_placed
                FROM tokens WHERE (SELECT count(*) FROM tokens) > 255
            ) AS placed
        ) AS pairs
        WHERE follows AND not_placed
    ), fitting AS (
        SELECT token, places, sum(octet_length(token) + 4 + 2 * least(count, 256)) OVER (ORDER BY first, token) AS size
        FROM entries
    )
    SELECT
        (SELECT string_agg('''' || token || '''' || coalesce(':' || places, ''), ' ') FROM fitting WHERE size < 1000000)
            ::tsvector,
        (SELECT count(*) FROM tokens)::integer
$$;

-- Return whether any message or title matches the search. Only the GIN indexes are allowed: for a word that does not occur, another
-- plan would read the whole table.
CREATE FUNCTION recollect.search_has() RETURNS boolean LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off AS $$
BEGIN
    IF row_security_active('recollect.search_index') THEN
        RETURN EXISTS (SELECT FROM recollect.search_index) OR EXISTS (SELECT FROM recollect.search_titles);
    END IF;
    RETURN EXISTS (
        SELECT FROM recollect.search_index
        WHERE words @@ (SELECT recollect.sought()) AND owner = recollect.owner()
    ) OR EXISTS (
        SELECT FROM recollect.search_titles
        WHERE words @@ (SELECT recollect.sought()) AND owner = recollect.owner()
    );
END $$;

-- Delete those of the passed words that no message and no title contains any more. The newest messages contain the common words, so
-- these need no lookup.
CREATE FUNCTION recollect.search_sweep(words text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    word text;
    gone text[] := '{}';
BEGIN
    FOR word IN
        SELECT value FROM json_array_elements_text(words::json)
        EXCEPT SELECT unnest(tsvector_to_array(newest.words)) FROM (
            SELECT i.words FROM recollect.search_index AS i WHERE i.owner = recollect.owner()
            ORDER BY i.tree DESC, i.branch DESC, i.position DESC LIMIT 100
        ) AS newest
    LOOP
        PERFORM set_config('recollect.sought', '''' || word || '''', true);
        IF NOT recollect.search_has() THEN
            gone := gone || word;
        END IF;
    END LOOP;
    PERFORM set_config('recollect.sought', '', true);
    DELETE FROM recollect.search_terms WHERE owner = recollect.owner() AND term = ANY (gone);
    RETURN cardinality(gone);
END $$;

-- Convert a JSON array of texts to their stored form: NUL and U+0010 are stored as two characters. An unpaired surrogate cannot be
-- stored; it becomes text that no stored value contains.
CREATE FUNCTION recollect.listed(list text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array_agg(value) FROM json_array_elements_text(replace(regexp_replace(replace(replace(replace(
        list, '\\', E'\x01'), '\u0010', '\u0010p'), '\u0000', '\u00100'), '\\u[dD][89a-fA-F]..', '\\u0010', 'g'),
        E'\x01', '\\')::json) AS value
$$;

-- Rank a message with BM25. The caller passes the weight of each phrase, the average length is a constant (100 tokens), and each
-- further position of a word counts less.
CREATE FUNCTION recollect.search_rank(words tsvector, length integer, sought tsquery[], weights float8[])
RETURNS float8 LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT -coalesce(sum(p.weight * r.fit * 2.2 / (r.fit + 1.2 * (0.25 + 0.75 * length / 100))), 0)
    FROM unnest(sought, weights) AS p (sought, weight)
    CROSS JOIN LATERAL (SELECT 1.6449 * ts_rank('{0.2, 0.4, 0.6, 1}', words, p.sought)::float8) AS r (fit)
    WHERE r.fit > 0
$$;
