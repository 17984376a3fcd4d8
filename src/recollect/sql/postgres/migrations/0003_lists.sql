-- What lists are narrowed and put in order by. None of it is on a column that an append changes, so that the row of a
-- session can still be written in its place.

CREATE INDEX sessions_channel ON recollect.sessions (owner, channel) WHERE channel IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_model ON recollect.sessions (owner, model) WHERE model IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_status ON recollect.sessions (owner, status) WHERE status <> 'active' AND deleted_at IS NULL;
CREATE INDEX sessions_pinned ON recollect.sessions (owner, pinned_at)
    WHERE pinned_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_archived ON recollect.sessions (owner, archived_at)
    WHERE archived_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_untitled ON recollect.sessions (owner) WHERE title IS NULL AND deleted_at IS NULL;

-- A title as it is put in order: beside the sessions, whose rows an append writes anew.
CREATE TABLE recollect.titles (
    tree bigint NOT NULL,
    session integer NOT NULL,
    owner text COLLATE "C" NOT NULL DEFAULT recollect.owner(),
    folded text COLLATE "C" NOT NULL,
    PRIMARY KEY (tree, session)
);

CREATE INDEX titles_folded ON recollect.titles (owner, folded, tree, session);

-- The rows of every owner are meant here, and not only those that one of them may see.
ALTER TABLE recollect.sessions NO FORCE ROW LEVEL SECURITY;

INSERT INTO recollect.titles (tree, session, owner, folded)
SELECT tree, number, owner, left(lower(title), 500) FROM recollect.sessions WHERE title IS NOT NULL;

ALTER TABLE recollect.sessions FORCE ROW LEVEL SECURITY;

ALTER TABLE recollect.titles ENABLE ROW LEVEL SECURITY;
ALTER TABLE recollect.titles FORCE ROW LEVEL SECURITY;
CREATE POLICY titles_owner ON recollect.titles USING (owner = (SELECT recollect.owner()));

-- Whether a part of a message is of a kind; NULL where its parts can not be read. The text of a part is compared, because
-- JSON may have escapes that PostgreSQL does not take apart.
CREATE FUNCTION recollect.part_is(parts text, part integer, kind text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM json_array_elements(parts::json) WITH ORDINALITY AS e (value, place)
        WHERE e.place = part + 1 AND e.value::text ~ ('"kind": ?"' || kind || '"')
    );
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;
