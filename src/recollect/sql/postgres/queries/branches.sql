-- shared: is_branch
-- Condition: the branch has the key :branch.
b.tree = :branch::bigint >> 20 AND b.number = (:branch::bigint & 1048575)::int

-- shared: branch_columns
-- The columns of a branch; the last position of a head branch is in the session row.
(b.tree << 20) | b.number AS key, b.number, (b.tree << 20) | b.session AS session, (b.tree << 20) | b.parent AS parent,
b.fork_at, CASE WHEN s.branch = b.number THEN s.last ELSE b.last END AS last, b.open_turn, b.created_at

-- name: tree_insert
-- Insert a tree.
INSERT INTO recollect.trees (owner) VALUES (:owner) RETURNING tree AS key

-- name: tree_branch
-- Raise the branch counter of a tree, and return it: the number of a new branch.
UPDATE recollect.trees SET branches = branches + 1 WHERE tree = :tree RETURNING branches AS number

-- name: tree_delete
-- Delete a tree without sessions and branches.
DELETE FROM recollect.trees
WHERE tree = :tree
    AND NOT EXISTS (SELECT 1 FROM recollect.sessions WHERE tree = :tree)
    AND NOT EXISTS (SELECT 1 FROM recollect.branches WHERE tree = :tree)

-- name: branch_insert
-- Insert a branch that leaves its parent after a position.
INSERT INTO recollect.branches (tree, number, session, parent, fork_at, last, created_at)
VALUES (:tree, :number, (:session::bigint & 1048575)::int, (:parent::bigint & 1048575)::int, :fork_at::int,
    :fork_at::int, :now)
RETURNING (tree << 20) | number AS key

-- name: branch_advance
-- Reserve positions at the end of a branch that is not a head.
UPDATE recollect.branches AS b SET last = last + :count::int WHERE {is_branch}

-- name: branch_store_last
-- Copy the last position of a session into its head branch, before the head changes.
UPDATE recollect.branches AS b SET last = s.last
FROM recollect.sessions AS s
WHERE s.tree = :session::bigint >> 20 AND s.number = (:session::bigint & 1048575)::int
    AND b.tree = s.tree AND b.number = s.branch

-- name: branch_claim
-- Record the open turn that holds a branch.
UPDATE recollect.branches AS b SET open_turn = :position WHERE {is_branch}

-- name: branch_release
-- Release a branch from a turn; no row if another turn holds it.
UPDATE recollect.branches AS b SET open_turn = NULL WHERE {is_branch} AND open_turn = :position
RETURNING (tree << 20) | number AS key

-- name: branch_get
-- Return a branch by its key.
SELECT {branch_columns}
FROM recollect.branches AS b LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
WHERE {is_branch}

-- name: branch_by_number
-- Return a branch by its public number in a tree.
SELECT {branch_columns}
FROM recollect.branches AS b LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
WHERE b.tree = :tree AND b.number = :number

-- name: branches_of_session
-- Return the branches of a session, oldest first.
SELECT (b.tree << 20) | b.number AS key, b.number, b.parent AS parent_number, b.fork_at,
    CASE WHEN s.branch = b.number THEN s.last ELSE b.last END AS last, b.created_at
FROM recollect.branches AS b JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
WHERE b.tree = :session::bigint >> 20 AND b.session = (:session::bigint & 1048575)::int
ORDER BY b.number

-- name: branches_of_tree_lock
-- Lock the rows that branches_of_tree reads.
SELECT number FROM recollect.sessions WHERE tree = :tree ORDER BY number FOR NO KEY UPDATE NOWAIT

-- name: branches_of_tree
-- Return the branches of a tree, a parent before its children.
SELECT (tree << 20) | number AS key, number, (tree << 20) | session AS session, (tree << 20) | parent AS parent, fork_at
FROM recollect.branches WHERE tree = :tree ORDER BY number

-- name: branch_open
-- Return the open turn of a branch, if it has one.
SELECT (tree << 20) | number AS key, number, open_turn FROM recollect.branches AS b
WHERE {is_branch} AND open_turn IS NOT NULL

-- name: branches_open
-- Return the branches of a session that have an open turn.
SELECT (tree << 20) | number AS key, number, open_turn FROM recollect.branches
WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int AND open_turn IS NOT NULL

-- name: branch_path
-- Return the spans of the path that ends with a branch, newest first.
WITH RECURSIVE path (tree, number, parent, low, high, depth) AS (
    SELECT b.tree, b.number, b.parent, b.fork_at, CASE WHEN s.branch = b.number THEN s.last ELSE b.last END, 0
    FROM recollect.branches AS b LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
    WHERE {is_branch}
    UNION ALL
    SELECT b.tree, b.number, b.parent, b.fork_at, p.low, p.depth + 1
    FROM path AS p JOIN recollect.branches AS b ON b.tree = p.tree AND b.number = p.parent
)
SELECT (tree << 20) | number AS branch, number, low, high FROM path ORDER BY depth

-- name: branch_delete
-- Delete a branch.
WITH deleted_compactions AS (
    DELETE FROM recollect.compactions AS b
    WHERE b.tree = :branch::bigint >> 20 AND b.branch = (:branch::bigint & 1048575)::int
)
DELETE FROM recollect.branches AS b WHERE {is_branch}
