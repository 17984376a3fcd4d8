-- Keys and earlier versions of messages, records, labels of sessions, and the spelling `cancelled`.

-- The caller's key of a message, and the time when its content was last replaced. Both are NULL for most messages. The key is
-- unique among the messages of a path that are not deleted.
ALTER TABLE messages ADD COLUMN client_key TEXT;
ALTER TABLE messages ADD COLUMN edited_at INTEGER;

CREATE INDEX messages_client_key ON messages (client_key, key) WHERE client_key IS NOT NULL;

-- The content that replace_message() has replaced, oldest version first. The columns are those of messages.
CREATE TABLE message_versions (
    message INTEGER NOT NULL,
    version INTEGER NOT NULL,
    replaced_at INTEGER NOT NULL,
    role TEXT NOT NULL,
    state TEXT,
    tokens INTEGER NOT NULL,
    input_tokens INTEGER,
    output_tokens INTEGER,
    completed_at INTEGER,
    format TEXT,
    model TEXT,
    error TEXT,
    metadata TEXT,
    native TEXT,
    blobs TEXT,
    parts TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX message_versions_message ON message_versions (message, version);

-- Keyed records, of a session or of the store (session = 0, so that one unique index serves both). `value` is JSON, `data` bytes; one
-- of them is NULL.
CREATE TABLE records (
    owner TEXT NOT NULL,
    session INTEGER NOT NULL DEFAULT 0,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL DEFAULT 1,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    value TEXT,
    data BLOB
) STRICT;

CREATE UNIQUE INDEX records_key ON records (owner, session, kind, key);

-- Settings become records. The functions of SQLite end a text at NUL, so prefixes are cut from blobs. Questions that wait for an
-- approval are not kept: they end with the process of the older version that asks.
INSERT INTO records (owner, kind, key, created_at, updated_at, value)
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
    CASE
        WHEN key = 'recollect.copy' THEN 'journal'
        WHEN key >= 'presence:' AND key < 'presence;' THEN CAST(substr(CAST(key AS BLOB), 10) AS TEXT)
        WHEN key = 'approvals' THEN 'grants'
        WHEN key >= 'bot:' AND key < 'bot;' THEN CAST(substr(CAST(key AS BLOB), 5) AS TEXT)
        WHEN key = 'web.models' THEN 'recent'
        ELSE key
    END,
    updated_at, updated_at, value
FROM settings
WHERE NOT (key >= 'approvals.waiting.' AND key < 'approvals.waiting/')
    AND NOT (key >= 'approvals.answer.' AND key < 'approvals.answer/');

DROP TABLE settings;

-- The labels of a session: a sorted JSON array in its row, and a row for each, by which lists and searches find the session.
ALTER TABLE sessions ADD COLUMN labels TEXT;

CREATE TABLE session_labels (
    session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
    label TEXT NOT NULL,
    owner TEXT NOT NULL,
    PRIMARY KEY (session, label)
) STRICT, WITHOUT ROWID;

CREATE INDEX session_labels_label ON session_labels (owner, label);

CREATE INDEX sessions_external ON sessions (owner, external_id) WHERE external_id IS NOT NULL AND deleted_at IS NULL;

-- A cancelled call was spelled `canceled`. SQLite cannot change a CHECK constraint, so the table is written again. It is not renamed: a
-- renamed table would break the views that read it.
CREATE TABLE former_tool_calls AS SELECT * FROM tool_calls;

DROP TABLE tool_calls;

CREATE TABLE tool_calls (
    message INTEGER NOT NULL,
    part INTEGER NOT NULL,
    branch INTEGER NOT NULL,
    call_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    status TEXT NOT NULL CHECK (
        status = 'pending' OR status = 'running' OR status = 'success' OR status = 'error' OR status = 'cancelled'
    ),
    result INTEGER,
    result_part INTEGER,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    completed_at INTEGER,
    latency_ms INTEGER,
    error_code TEXT,
    error_message TEXT,
    PRIMARY KEY (message, part, branch)
) STRICT, WITHOUT ROWID;

INSERT INTO tool_calls
SELECT
    message, part, branch, call_id, tool, iif(status = 'canceled', 'cancelled', status), result, result_part, created_at,
    started_at, completed_at, latency_ms, error_code, error_message
FROM former_tool_calls;

DROP TABLE former_tool_calls;

-- Spell the status of tool results in the parts of messages. The JSON functions change no other byte of JSON without white space: numbers
-- and escapes keep their text. The leading spaces, which mark a text with rare values, are kept. Parts that are not JSON are left
-- to `recollect db check`. instr() comes first, because it reads a message without parsing it.
UPDATE messages SET parts = substr(parts, 1, length(parts) - length(ltrim(parts, ' '))) || (
    SELECT '[' || group_concat(
        iif(value ->> 'kind' = 'tool_result' AND value ->> 'status' = 'canceled', json_set(value, '$.status', 'cancelled'), value), ','
        ORDER BY key
    ) || ']'
    FROM json_each(parts)
)
WHERE CASE WHEN instr(parts, '"status":"canceled"') AND json_valid(parts) THEN EXISTS (
    SELECT 1 FROM json_each(parts) WHERE value ->> 'kind' = 'tool_result' AND value ->> 'status' = 'canceled'
) END;
