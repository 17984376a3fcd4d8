-- The current schema: the sum of migrations/, which a test compares with it. Nothing runs this file.
-- docs/reference/file-format.md explains every column.

CREATE TABLE trees (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    branches INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    tree INTEGER NOT NULL REFERENCES trees (key),
    head INTEGER,
    branch INTEGER NOT NULL DEFAULT 1,
    last INTEGER NOT NULL DEFAULT 0 CHECK (last < 4294967296),
    parent INTEGER REFERENCES sessions (key) ON DELETE SET NULL,
    relation TEXT CHECK (relation IN ('fork', 'delegate')),
    revision INTEGER NOT NULL DEFAULT 0,
    open_turns INTEGER NOT NULL DEFAULT 0,
    message_count INTEGER NOT NULL DEFAULT 0,
    token_count INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    active_at INTEGER NOT NULL,
    last_message_at INTEGER,
    pinned_at INTEGER,
    archived_at INTEGER,
    deleted_at INTEGER,
    status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'completed', 'failed')),
    channel TEXT,
    channel_id TEXT,
    external_id TEXT,
    title TEXT,
    task TEXT,
    provider TEXT,
    provider_config TEXT,
    model TEXT,
    working_dir TEXT,
    system_prompt TEXT,
    color TEXT,
    metadata TEXT,
    data_schema_version INTEGER NOT NULL DEFAULT 1,
    title_changed INTEGER DEFAULT 1,
    labels TEXT
) STRICT;

CREATE UNIQUE INDEX sessions_id ON sessions (owner, id) WHERE deleted_at IS NULL;
CREATE INDEX sessions_trash ON sessions (owner, id) WHERE deleted_at IS NOT NULL;
CREATE INDEX sessions_active ON sessions (owner, active_at) WHERE deleted_at IS NULL;
CREATE INDEX sessions_created ON sessions (owner, created_at) WHERE deleted_at IS NULL;
CREATE INDEX sessions_tree ON sessions (tree);
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_channel ON sessions (owner, channel) WHERE channel IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_model ON sessions (owner, model) WHERE model IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_status ON sessions (owner, status) WHERE status <> 'active' AND deleted_at IS NULL;
CREATE INDEX sessions_pinned ON sessions (owner, pinned_at) WHERE pinned_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_archived ON sessions (owner, archived_at) WHERE archived_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_untitled ON sessions (owner) WHERE title IS NULL AND deleted_at IS NULL;
CREATE INDEX sessions_external ON sessions (owner, external_id) WHERE external_id IS NOT NULL AND deleted_at IS NULL;

CREATE TABLE session_labels (
    session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
    label TEXT NOT NULL,
    owner TEXT NOT NULL,
    PRIMARY KEY (session, label)
) STRICT, WITHOUT ROWID;

CREATE INDEX session_labels_label ON session_labels (owner, label);

CREATE TABLE titles (
    session INTEGER PRIMARY KEY REFERENCES sessions (key) ON DELETE CASCADE,
    owner TEXT NOT NULL,
    folded TEXT NOT NULL
) STRICT;

CREATE INDEX titles_folded ON titles (owner, folded);

CREATE INDEX sessions_title_changed ON sessions (owner) WHERE title_changed = 1;

CREATE TABLE branches (
    key INTEGER PRIMARY KEY AUTOINCREMENT CHECK (key < 2147483648),
    tree INTEGER NOT NULL REFERENCES trees (key),
    number INTEGER NOT NULL,
    session INTEGER REFERENCES sessions (key) ON DELETE SET NULL,
    parent INTEGER REFERENCES branches (key),
    fork_at INTEGER NOT NULL DEFAULT 0,
    last INTEGER NOT NULL DEFAULT 0 CHECK (last < 4294967296),
    open_turn INTEGER,
    indexed_to INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX branches_number ON branches (tree, number);
CREATE INDEX branches_session ON branches (session) WHERE session IS NOT NULL;
CREATE INDEX branches_parent ON branches (parent) WHERE parent IS NOT NULL;

CREATE TABLE turns (
    key INTEGER PRIMARY KEY,
    status TEXT NOT NULL CHECK (
        status = 'open' OR status = 'completed' OR status = 'failed' OR status = 'cancelled' OR status = 'interrupted'
    ),
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    latency_ms INTEGER,
    input_tokens INTEGER,
    output_tokens INTEGER,
    model TEXT,
    error TEXT,
    holder TEXT,
    lease_until INTEGER
) STRICT;

CREATE TABLE messages (
    key INTEGER PRIMARY KEY,
    role TEXT NOT NULL CHECK (role = 'user' OR role = 'assistant' OR role = 'tool' OR role = 'system'),
    state TEXT CHECK (state = 'pending' OR state = 'streaming' OR state = 'interrupted' OR state = 'error'),
    turn INTEGER,
    tokens INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER,
    output_tokens INTEGER,
    created_at INTEGER NOT NULL,
    completed_at INTEGER,
    deleted_at INTEGER,
    format TEXT,
    model TEXT,
    error TEXT,
    metadata TEXT,
    native TEXT,
    blobs TEXT,
    parts TEXT NOT NULL,
    client_key TEXT,
    edited_at INTEGER
) STRICT;

CREATE INDEX messages_client_key ON messages (client_key, key) WHERE client_key IS NOT NULL;

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

CREATE TABLE appends (
    session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    branch INTEGER NOT NULL,
    position INTEGER NOT NULL,
    count INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

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

CREATE TABLE compactions (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    branch INTEGER NOT NULL REFERENCES branches (key) ON DELETE CASCADE,
    from_position INTEGER NOT NULL,
    to_position INTEGER NOT NULL,
    round INTEGER NOT NULL,
    tokens_before INTEGER NOT NULL,
    tokens_after INTEGER NOT NULL,
    summary TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    undone_at INTEGER
) STRICT;

CREATE INDEX compactions_branch ON compactions (branch, to_position);

CREATE TABLE snapshots (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
    kind TEXT NOT NULL CHECK (kind IN ('title', 'summary', 'memory')),
    content TEXT NOT NULL,
    message INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE INDEX snapshots_kind ON snapshots (session, kind);

CREATE TABLE pins (
    message INTEGER PRIMARY KEY
) STRICT;

CREATE TABLE blobs (
    owner TEXT NOT NULL,
    hash TEXT NOT NULL,
    size INTEGER NOT NULL,
    refs INTEGER NOT NULL,
    data BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX blobs_hash ON blobs (owner, hash);

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

-- Full-text search. The index of messages is contentless: it holds no text and can be rebuilt from the messages.

CREATE VIRTUAL TABLE search_index USING fts5(
    said, calls, results, tags,
    content = '', tokenize = "unicode61 remove_diacritics 0 categories 'L* N* Co So'"
);

CREATE VIRTUAL TABLE search_titles USING fts5(
    title, tokenize = "unicode61 remove_diacritics 0 categories 'L* N* Co So'"
);

CREATE TABLE search_terms (term TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

-- Views for people who query the file with any sqlite3: the same data with the table and column names that the schema of a
-- chat application usually has. The id of a message is tree.branch.position.

CREATE VIEW chat_sessions AS
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
    (SELECT c.summary FROM compactions AS c
        WHERE c.branch = s.head AND c.undone_at IS NULL ORDER BY c.key DESC LIMIT 1) AS summary,
    (SELECT c.created_at FROM compactions AS c
        WHERE c.branch = s.head AND c.undone_at IS NULL ORDER BY c.key DESC LIMIT 1) AS summary_updated_at,
    s.color,
    s.metadata,
    s.deleted_at
FROM sessions AS s;

CREATE VIEW chat_messages AS
SELECT
    b.tree || '.' || b.number || '.' || (m.key & 4294967295) AS id,
    s.id AS session_id,
    m.role,
    coalesce(m.state, 'completed') AS state,
    m.key & 4294967295 AS sequence,
    m.created_at,
    coalesce(m.completed_at, CASE WHEN m.state IS NULL THEN m.created_at END) AS completed_at,
    m.input_tokens,
    m.output_tokens,
    m.error,
    m.metadata,
    CASE
        WHEN (m.key & 4294967295) > b.fork_at + 1
            THEN b.tree || '.' || b.number || '.' || ((m.key & 4294967295) - 1)
        WHEN p.key IS NOT NULL THEN p.tree || '.' || p.number || '.' || b.fork_at
    END AS parent_message_id,
    m.deleted_at
FROM messages AS m
JOIN branches AS b ON b.key = m.key >> 32
LEFT JOIN branches AS p ON p.key = b.parent
LEFT JOIN sessions AS s ON s.key = b.session;

CREATE VIEW message_parts AS
SELECT
    b.tree || '.' || b.number || '.' || (m.key & 4294967295) || '.' || j.key AS id,
    b.tree || '.' || b.number || '.' || (m.key & 4294967295) AS message_id,
    s.id AS session_id,
    j.value ->> 'kind' AS kind,
    j.key AS sequence,
    coalesce(
        j.value ->> 'text',
        (SELECT group_concat(c.value ->> 'text', char(10)) FROM json_each(j.value, '$.content') AS c)
    ) AS content_text,
    coalesce(
        j.value -> 'arguments', j.value ->> 'arguments_text', j.value -> 'data', j.value -> 'content',
        j.value -> 'native'
    ) AS content_json,
    j.value ->> 'mime_type' AS mime_type,
    j.value ->> 'size' AS size_bytes,
    j.value ->> 'call_id' AS tool_call_id,
    coalesce(j.value ->> 'tool', CASE WHEN j.value ->> 'kind' = 'tool_result' THEN coalesce(
        (SELECT r.tool FROM tool_calls AS r
            WHERE r.message BETWEEN (b.key << 32) AND m.key AND r.result = m.key AND r.result_part = j.key
            ORDER BY r.message DESC LIMIT 1),
        (SELECT r.tool FROM tool_calls AS r
            WHERE r.message BETWEEN (b.parent << 32) AND (b.parent << 32) | b.fork_at AND r.branch = b.key
                AND r.result = m.key AND r.result_part = j.key
            ORDER BY r.message DESC LIMIT 1)
    ) END) AS tool_name,
    coalesce(t.status, CASE WHEN j.value ->> 'kind' = 'tool_result'
        THEN coalesce(j.value ->> 'status', 'success') END) AS status,
    coalesce(j.value ->> 'error_code', t.error_code) AS error_code,
    coalesce(j.value ->> 'error_message', t.error_message) AS error_message,
    CASE WHEN j.value ->> 'kind' = 'tool_result' THEN coalesce(
        (SELECT b.tree || '.' || b.number || '.' || (r.message & 4294967295) || '.' || r.part FROM tool_calls AS r
            WHERE r.message BETWEEN (b.key << 32) AND m.key AND r.result = m.key AND r.result_part = j.key
            ORDER BY r.message DESC LIMIT 1),
        (SELECT p.tree || '.' || p.number || '.' || (r.message & 4294967295) || '.' || r.part
            FROM tool_calls AS r JOIN branches AS p ON p.key = b.parent
            WHERE r.message BETWEEN (b.parent << 32) AND (b.parent << 32) | b.fork_at AND r.branch = b.key
                AND r.result = m.key AND r.result_part = j.key
            ORDER BY r.message DESC LIMIT 1)
    ) END AS related_part_id,
    j.value -> 'metadata' AS metadata,
    m.created_at,
    coalesce(m.completed_at, m.created_at) AS updated_at
FROM messages AS m
JOIN branches AS b ON b.key = m.key >> 32
JOIN json_each(m.parts) AS j
LEFT JOIN sessions AS s ON s.key = b.session
LEFT JOIN tool_calls AS t ON t.message = m.key AND t.part = j.key AND t.branch = b.key;

CREATE VIEW tool_invocations AS
SELECT
    b.tree || '.' || b.number || '.' || (t.message & 4294967295) || '.' || t.part || '.' || a.number AS id,
    s.id AS session_id,
    b.tree || '.' || b.number || '.' || (t.message & 4294967295) AS message_id,
    b.tree || '.' || b.number || '.' || (t.message & 4294967295) || '.' || t.part AS invocation_part_id,
    CASE WHEN t.result IS NOT NULL
        THEN a.tree || '.' || a.number || '.' || (t.result & 4294967295) || '.' || t.result_part
    END AS result_part_id,
    t.call_id AS tool_call_id,
    t.tool AS tool_name,
    coalesce(
        json_extract(m.parts, '$[' || t.part || '].arguments_text'),
        m.parts -> ('$[' || t.part || '].arguments')
    ) AS input_json,
    coalesce(
        json_extract(o.parts, '$[' || t.result_part || '].text'),
        o.parts -> ('$[' || t.result_part || '].data'),
        o.parts -> ('$[' || t.result_part || '].content')
    ) AS output_json,
    t.status,
    t.error_code,
    t.error_message,
    t.latency_ms,
    t.started_at,
    t.completed_at,
    t.created_at,
    coalesce(t.completed_at, t.started_at, t.created_at) AS updated_at
FROM tool_calls AS t
JOIN branches AS b ON b.key = t.message >> 32
JOIN branches AS a ON a.key = t.branch
JOIN messages AS m ON m.key = t.message
LEFT JOIN messages AS o ON o.key = t.result
LEFT JOIN sessions AS s ON s.key = a.session;

CREATE VIEW session_snapshots AS
SELECT
    n.key AS id,
    s.id AS session_id,
    n.kind,
    n.content AS content_json,
    b.tree || '.' || b.number || '.' || (n.message & 4294967295) AS message_cutoff_id,
    n.tokens AS token_count,
    n.created_at,
    n.updated_at
FROM snapshots AS n
JOIN sessions AS s ON s.key = n.session
LEFT JOIN branches AS b ON b.key = n.message >> 32;
