-- Indexes for the filters and sort orders of lists. None of them contains a column that an append changes, so that an append can
-- still be a HOT update of its session.

CREATE INDEX sessions_channel ON recollect.sessions (owner, channel) WHERE channel IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_model ON recollect.sessions (owner, model) WHERE model IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_status ON recollect.sessions (owner, status) WHERE status <> 'active' AND deleted_at IS NULL;
CREATE INDEX sessions_pinned ON recollect.sessions (owner, pinned_at)
    WHERE pinned_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_archived ON recollect.sessions (owner, archived_at)
    WHERE archived_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_untitled ON recollect.sessions (owner) WHERE title IS NULL AND deleted_at IS NULL;

-- The sort keys of titles, in a separate table, because an append rewrites the row of its session.
CREATE TABLE recollect.titles (
    tree bigint NOT NULL,
    session integer NOT NULL,
    owner text COLLATE "C" NOT NULL DEFAULT recollect.owner(),
    folded text COLLATE "C" NOT NULL,
    PRIMARY KEY (tree, session)
);

CREATE INDEX titles_folded ON recollect.titles (owner, folded, tree, session);

-- The statement processes the rows of every owner, so the policy must not filter them.
ALTER TABLE recollect.sessions NO FORCE ROW LEVEL SECURITY;

INSERT INTO recollect.titles (tree, session, owner, folded)
SELECT tree, number, owner, left(lower(title), 500) FROM recollect.sessions WHERE title IS NOT NULL;

ALTER TABLE recollect.sessions FORCE ROW LEVEL SECURITY;

ALTER TABLE recollect.titles ENABLE ROW LEVEL SECURITY;
ALTER TABLE recollect.titles FORCE ROW LEVEL SECURITY;
CREATE POLICY titles_owner ON recollect.titles USING (owner = (SELECT recollect.owner()));

-- Return whether a part of a message is of a kind; NULL if the parts cannot be parsed. The text of the part is compared, because its
-- JSON may contain escapes that PostgreSQL cannot decode.
CREATE FUNCTION recollect.part_is(parts text, part integer, kind text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM json_array_elements(parts::json) WITH ORDINALITY AS e (value, place)
        WHERE e.place = part + 1 AND e.value::text ~ ('"kind": ?"' || kind || '"')
    );
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;
