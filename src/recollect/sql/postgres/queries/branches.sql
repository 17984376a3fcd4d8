-- shared: this
b.tree = :branch::bigint >> 20 AND b.number = (:branch::bigint & 1048575)::int

-- shared: whole
(b.tree << 20) | b.number, b.number, (b.tree << 20) | b.session, (b.tree << 20) | b.parent, b.fork_at,
CASE WHEN s.branch = b.number THEN s.last ELSE b.last END, b.open_turn, b.created_at

-- name: tree_insert
INSERT INTO recollect.trees (owner) VALUES (:owner) RETURNING tree

-- name: tree_branch
UPDATE recollect.trees SET branches = branches + 1 WHERE tree = :tree RETURNING branches

-- name: tree_delete
DELETE FROM recollect.trees
WHERE tree = :tree
    AND NOT EXISTS (SELECT 1 FROM recollect.sessions WHERE tree = :tree)
    AND NOT EXISTS (SELECT 1 FROM recollect.branches WHERE tree = :tree)

-- name: branch_insert
INSERT INTO recollect.branches (tree, number, session, parent, fork_at, last, created_at)
VALUES (:tree, :number, (:session::bigint & 1048575)::int, (:parent::bigint & 1048575)::int, :fork_at::int,
    :fork_at::int, :now)
RETURNING (tree << 20) | number

-- name: branch_advance
UPDATE recollect.branches AS b SET last = last + :count::int WHERE {this}
RETURNING last - :count::int, number, open_turn

-- name: branch_park
UPDATE recollect.branches AS b SET last = s.last
FROM recollect.sessions AS s
WHERE s.tree = :session::bigint >> 20 AND s.number = (:session::bigint & 1048575)::int
    AND b.tree = s.tree AND b.number = s.branch

-- name: branch_claim
UPDATE recollect.branches AS b SET open_turn = :position WHERE {this}

-- name: branch_release
UPDATE recollect.branches AS b SET open_turn = NULL WHERE {this} AND open_turn = :position
RETURNING (tree << 20) | number

-- name: branch_get
SELECT {whole}
FROM recollect.branches AS b LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
WHERE {this}

-- name: branch_by_number
SELECT {whole}
FROM recollect.branches AS b LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
WHERE b.tree = :tree AND b.number = :number

-- name: branches_of_session
SELECT (b.tree << 20) | b.number, b.number, b.parent, b.fork_at,
    CASE WHEN s.branch = b.number THEN s.last ELSE b.last END, b.created_at
FROM recollect.branches AS b JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
WHERE b.tree = :session::bigint >> 20 AND b.session = (:session::bigint & 1048575)::int
ORDER BY b.number

-- lock: branches_of_tree
SELECT number FROM recollect.sessions WHERE tree = :tree ORDER BY number FOR NO KEY UPDATE NOWAIT

-- name: branches_of_tree
SELECT (tree << 20) | number, number, (tree << 20) | session, (tree << 20) | parent, fork_at
FROM recollect.branches WHERE tree = :tree ORDER BY number

-- name: branch_open
SELECT open_turn FROM recollect.branches AS b WHERE {this} AND open_turn IS NOT NULL

-- name: branches_open
SELECT (tree << 20) | number, number, open_turn FROM recollect.branches
WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int AND open_turn IS NOT NULL

-- name: branch_path
WITH RECURSIVE path (tree, number, parent, low, high, depth) AS (
    SELECT b.tree, b.number, b.parent, b.fork_at, CASE WHEN s.branch = b.number THEN s.last ELSE b.last END, 0
    FROM recollect.branches AS b LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
    WHERE {this}
    UNION ALL
    SELECT b.tree, b.number, b.parent, b.fork_at, p.low, p.depth + 1
    FROM path AS p JOIN recollect.branches AS b ON b.tree = p.tree AND b.number = p.parent
)
SELECT (tree << 20) | number, number, low, high FROM path ORDER BY depth

-- name: branch_delete
WITH undone AS (
    DELETE FROM recollect.compactions AS b
    WHERE b.tree = :branch::bigint >> 20 AND b.branch = (:branch::bigint & 1048575)::int
)
DELETE FROM recollect.branches AS b WHERE {this}
