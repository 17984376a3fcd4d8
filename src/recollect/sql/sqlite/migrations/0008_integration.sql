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

-- Keyed records, of a session or of the store (session is NULL). `value` is JSON, `data` bytes; one of them is NULL.
CREATE TABLE records (
    owner TEXT NOT NULL,
    session INTEGER REFERENCES sessions (key) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL DEFAULT 1,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    value TEXT,
    data BLOB
) STRICT;

CREATE UNIQUE INDEX records_store ON records (owner, kind, key) WHERE session IS NULL;
CREATE UNIQUE INDEX records_session ON records (session, kind, key) WHERE session IS NOT NULL;

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
