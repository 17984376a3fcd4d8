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
    role recollect.role NOT NULL,
    state recollect.message_state,
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
-- NULL.
CREATE TABLE recollect.records (
    session bigint NOT NULL DEFAULT 0,
    revision bigint NOT NULL DEFAULT 1,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    owner text COLLATE "C" NOT NULL DEFAULT recollect.owner(),
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C",
    data bytea,
    PRIMARY KEY (owner, session, kind, key)
);

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
