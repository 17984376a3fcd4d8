CREATE TABLE recollect.pins (
    tree bigint NOT NULL,
    branch integer NOT NULL,
    position integer NOT NULL,
    owner text COLLATE "C" NOT NULL DEFAULT recollect.owner(),
    PRIMARY KEY (tree, branch, position)
);

-- The statement processes the rows of every owner, so the policy must not filter them.
ALTER TABLE recollect.messages NO FORCE ROW LEVEL SECURITY;

-- The JSON escape of NUL is removed before the cast, because PostgreSQL text cannot hold NUL.
INSERT INTO recollect.pins (tree, branch, position, owner)
SELECT tree, branch, position, owner FROM recollect.messages
WHERE role = 'system' OR CASE WHEN metadata LIKE '%"pinned"%'
    THEN replace(replace(metadata, '\\', '\/'), '\u0000', '')::json ->> 'pinned' = 'true' END;

ALTER TABLE recollect.messages FORCE ROW LEVEL SECURITY;

ALTER TABLE recollect.pins ENABLE ROW LEVEL SECURITY;
ALTER TABLE recollect.pins FORCE ROW LEVEL SECURITY;
CREATE POLICY pins_owner ON recollect.pins USING (owner = (SELECT recollect.owner()));
