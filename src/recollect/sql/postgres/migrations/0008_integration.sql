-- Keys and earlier versions of messages, records, labels of sessions, and the spelling `cancelled`.

-- The caller's key of a message, and the time when its content was last replaced. Both are NULL for most messages. The key is
-- unique among the messages of a path that are not deleted.
ALTER TABLE recollect.messages ADD COLUMN client_key text COLLATE "C", ADD COLUMN edited_at bigint;
ALTER TABLE recollect.messages ALTER COLUMN client_key SET STORAGE MAIN;

CREATE INDEX messages_client_key ON recollect.messages (owner, client_key, tree, branch, position) WHERE client_key IS NOT NULL;

-- The content that replace_message() has replaced, oldest version first. The columns are those of messages.
CREATE TABLE recollect.message_versions (
    tree bigint NOT NULL,
    branch integer NOT NULL,
    position integer NOT NULL,
    version integer NOT NULL,
    replaced_at bigint NOT NULL,
    tokens bigint NOT NULL,
    input_tokens bigint,
    output_tokens bigint,
    completed_at bigint,
    owner text COLLATE "C" NOT NULL DEFAULT recollect.owner(),
    role text COLLATE "C" NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
    state text COLLATE "C" CHECK (state IN ('pending', 'streaming', 'interrupted', 'error')),
    format text COLLATE "C",
    model text COLLATE "C",
    error text COLLATE "C",
    metadata text COLLATE "C",
    native text COLLATE "C",
    blobs text COLLATE "C",
    parts text COLLATE "C" NOT NULL,
    PRIMARY KEY (tree, branch, position, version)
);

-- Keyed records, of a session, whose packed key is in `session`, or of the store (0). `value` is JSON, `data` bytes; one of them is
-- NULL. The key is UTF-8 in a bytea: a text cannot hold NUL, and its escaped form does not sort as NUL does.
CREATE TABLE recollect.records (
    session bigint NOT NULL DEFAULT 0,
    revision bigint NOT NULL DEFAULT 1,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    owner text COLLATE "C" NOT NULL DEFAULT recollect.owner(),
    kind text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    value text COLLATE "C",
    data bytea,
    PRIMARY KEY (owner, session, kind, key)
);

-- Settings become records. The keys were texts in which U+0010 and a character stand for NUL and U+0010. Questions that wait for an
-- approval are not kept: they end with the process of the older version that asks.
ALTER TABLE recollect.settings NO FORCE ROW LEVEL SECURITY; -- the statement processes the rows of every owner

INSERT INTO recollect.records (owner, kind, key, created_at, updated_at, value)
SELECT
    owner,
    CASE
        WHEN key = 'last_session' THEN 'agent.state'
        WHEN key = 'recollect.copy' THEN 'recollect.copy'
        WHEN key >= 'presence:' AND key < 'presence;' THEN 'recollect.presence'
        WHEN key = 'approvals' THEN 'agent.approvals'
        WHEN key >= 'bot:' AND key < 'bot;' THEN 'bot.ledger'
        WHEN key = 'web.models' THEN 'web.models'
        ELSE 'setting'
    END,
    decode(replace(replace(replace(
        CASE
            WHEN key = 'recollect.copy' THEN 'journal'
            WHEN key >= 'presence:' AND key < 'presence;' THEN substr(key, 10)
            WHEN key = 'approvals' THEN 'grants'
            WHEN key >= 'bot:' AND key < 'bot;' THEN substr(key, 5)
            WHEN key = 'web.models' THEN 'recent'
            ELSE key
        END,
    '\', '\\'), chr(16) || '0', '\000'), chr(16) || 'p', '\020'), 'escape'),
    updated_at, updated_at, value
FROM recollect.settings
WHERE NOT (key >= 'approvals.waiting.' AND key < 'approvals.waiting/')
    AND NOT (key >= 'approvals.answer.' AND key < 'approvals.answer/');

DROP TABLE recollect.settings;

-- The labels of a session: a sorted JSON array in its row, and a row for each, by which lists and searches find the session.
ALTER TABLE recollect.sessions ADD COLUMN labels text COLLATE "C";

CREATE TABLE recollect.session_labels (
    tree bigint NOT NULL,
    session integer NOT NULL,
    owner text COLLATE "C" NOT NULL DEFAULT recollect.owner(),
    label text COLLATE "C" NOT NULL,
    PRIMARY KEY (tree, session, label)
);

CREATE INDEX session_labels_label ON recollect.session_labels (owner, label, tree, session);

-- Convert JSON text so that PostgreSQL can decode it, and different texts stay different: NUL and unpaired surrogates become U+FFFF and
-- their number, with an escape in upper case, which Recollect never writes. recollect.readable() is for people.
CREATE FUNCTION recollect.decodable(value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN strpos(value, '\u') = 0 THEN value ELSE
        regexp_replace(
            regexp_replace(
                regexp_replace(value, '(?<!\\)((?:\\\\)*)\\u(0000)', '\1\\uFFFF\2', 'g'),
                '(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})', '\1\\uFFFF\2', 'g'
            ),
            '(?<!\\u[dD][89abAB][0-9a-fA-F]{2})(?<!\\)((?:\\\\)*)\\u([dD][c-fC-F][0-9a-fA-F]{2})', '\1\\uFFFF\2', 'g'
        )
    END
$$;

CREATE INDEX sessions_external ON recollect.sessions (owner, external_id) WHERE external_id IS NOT NULL AND deleted_at IS NULL;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['message_versions', 'records', 'session_labels'] LOOP
        EXECUTE format('ALTER TABLE recollect.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE recollect.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY %I ON recollect.%I USING (owner = (SELECT recollect.owner()))', name || '_owner', name
        );
    END LOOP;
END $$;

-- The names of owners are readable while the transaction sets recollect.listing, as for the other tables (migration 7).
CREATE POLICY records_listing ON recollect.records FOR SELECT
    USING ((SELECT current_setting('recollect.listing', true)) = 'on');

-- A cancelled call was spelled `canceled`. The statements process the rows of every owner.
ALTER TABLE recollect.tool_calls NO FORCE ROW LEVEL SECURITY;
ALTER TABLE recollect.messages NO FORCE ROW LEVEL SECURITY;

-- A database of an early version has no domain: its column is a text with a constraint of its own.
DO $$
DECLARE
    has_domain boolean := to_regtype('recollect.call_status') IS NOT NULL;
BEGIN
    IF has_domain THEN
        ALTER DOMAIN recollect.call_status DROP CONSTRAINT call_status_check;
    ELSE
        ALTER TABLE recollect.tool_calls DROP CONSTRAINT IF EXISTS tool_calls_status_check;
    END IF;
    UPDATE recollect.tool_calls SET status = 'cancelled' WHERE status = 'canceled';
    IF has_domain THEN
        ALTER DOMAIN recollect.call_status
            ADD CONSTRAINT call_status_check CHECK (VALUE IN ('pending', 'running', 'success', 'error', 'cancelled'));
    ELSE
        ALTER TABLE recollect.tool_calls ADD CONSTRAINT tool_calls_status_check
            CHECK (status IN ('pending', 'running', 'success', 'error', 'cancelled'));
    END IF;
END $$;

-- Spell the status of one part, if it is a tool result, and change no other byte. jsonb would write numbers in another way and cannot hold
-- NUL, so the text is cut at every `"status":"canceled"`. Inside a JSON string, the quotes would be escaped. Some of these may be data
-- of the caller: the fields before the status tell how many of them come before it.
CREATE FUNCTION recollect.respelled(part text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE
        WHEN decoded ->> 'kind' = 'tool_result' AND decoded ->> 'status' = 'canceled' THEN
            array_to_string(pieces[:before + 1], '"status":"canceled"') || '"status":"cancelled"'
            || array_to_string(pieces[before + 2:], '"status":"canceled"')
        ELSE part
    END
    FROM (SELECT recollect.decodable(part)::json AS decoded, string_to_array(part, '"status":"canceled"') AS pieces) AS parsed,
    LATERAL (
        SELECT coalesce(sum(cardinality(string_to_array(value::text, '"status":"canceled"')) - 1), 0)::integer AS before
        FROM json_each(decoded) WITH ORDINALITY AS field (key, value, number)
        WHERE number < (SELECT min(number) FROM json_each(decoded) WITH ORDINALITY AS other (key, value, number) WHERE key = 'status')
    ) AS preceding
$$;

UPDATE recollect.messages SET parts = substr(parts, 1, length(parts) - length(ltrim(parts, ' '))) || (
    SELECT '[' || string_agg(recollect.respelled(value::text), ',' ORDER BY number) || ']'
    FROM json_array_elements(parts::json) WITH ORDINALITY AS element (value, number)
)
WHERE strpos(parts, '"status":"canceled"') > 0;

DROP FUNCTION recollect.respelled(text);

ALTER TABLE recollect.messages FORCE ROW LEVEL SECURITY;
ALTER TABLE recollect.tool_calls FORCE ROW LEVEL SECURITY;
