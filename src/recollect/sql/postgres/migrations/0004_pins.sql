CREATE TABLE recollect.pins (
    tree bigint NOT NULL,
    branch integer NOT NULL,
    position integer NOT NULL,
    owner text COLLATE "C" NOT NULL DEFAULT recollect.owner(),
    PRIMARY KEY (tree, branch, position)
);

-- The rows of every owner are meant here, and not only those that one of them may see.
ALTER TABLE recollect.messages NO FORCE ROW LEVEL SECURITY;

-- JSON's escape of NUL, which PostgreSQL's text can not have, is taken out before it is read.
INSERT INTO recollect.pins (tree, branch, position, owner)
SELECT tree, branch, position, owner FROM recollect.messages
WHERE role = 'system' OR CASE WHEN metadata LIKE '%"pinned"%'
    THEN replace(replace(metadata, '\\', '\/'), '\u0000', '')::json ->> 'pinned' = 'true' END;

ALTER TABLE recollect.messages FORCE ROW LEVEL SECURITY;

ALTER TABLE recollect.pins ENABLE ROW LEVEL SECURITY;
ALTER TABLE recollect.pins FORCE ROW LEVEL SECURITY;
CREATE POLICY pins_owner ON recollect.pins USING (owner = (SELECT recollect.owner()));
