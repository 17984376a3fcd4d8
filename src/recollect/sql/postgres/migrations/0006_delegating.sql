-- Whether a session ever had a sub-agent. A list counts the sub-agents of each session that it shows, and nearly all have none:
-- looking for them in the index took a third of the time that a page takes.

ALTER TABLE recollect.sessions ADD COLUMN delegating boolean NOT NULL DEFAULT false;

-- The rows of every owner are meant here, and not only those that one of them may see.
ALTER TABLE recollect.sessions NO FORCE ROW LEVEL SECURITY;

UPDATE recollect.sessions SET delegating = true WHERE (tree, number) IN (
    SELECT d.parent >> 20, (d.parent & 1048575)::int FROM recollect.sessions AS d
    WHERE d.parent IS NOT NULL AND d.relation = 'delegate'
);

ALTER TABLE recollect.sessions FORCE ROW LEVEL SECURITY;

-- Whatever makes a session the sub-agent of another, sets it.
CREATE FUNCTION recollect.delegate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE recollect.sessions SET delegating = true
    WHERE tree = NEW.parent >> 20 AND number = (NEW.parent & 1048575)::int AND NOT delegating;
    RETURN NULL;
END $$;

CREATE TRIGGER sessions_delegate AFTER INSERT OR UPDATE OF parent, relation ON recollect.sessions
    FOR EACH ROW WHEN (NEW.parent IS NOT NULL AND NEW.relation = 'delegate') EXECUTE FUNCTION recollect.delegate();
