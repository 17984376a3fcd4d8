-- name: tree_insert
-- Insert a tree.
INSERT INTO trees (owner) VALUES (:owner) RETURNING key

-- name: tree_branch
-- Raise the branch counter of a tree, and return it: the number of a new branch.
UPDATE trees SET branches = branches + 1 WHERE key = :tree RETURNING branches AS number

-- name: tree_delete
-- Delete a tree without sessions and branches.
DELETE FROM trees
WHERE key = :tree
    AND NOT EXISTS (SELECT 1 FROM sessions WHERE tree = :tree)
    AND NOT EXISTS (SELECT 1 FROM branches WHERE tree = :tree)

-- name: branch_insert
-- Insert a branch that leaves its parent after a position.
INSERT INTO branches (tree, number, session, parent, fork_at, last, created_at)
VALUES (:tree, :number, :session, :parent, :fork_at, :fork_at, :now)
RETURNING key

-- name: branch_advance
-- Reserve positions at the end of a branch that is not a head.
UPDATE branches SET last = last + :count WHERE key = :branch

-- name: branch_store_last
-- Copy the last position of a session into its head branch, before the head changes.
UPDATE branches SET last = (SELECT s.last FROM sessions AS s WHERE s.key = :session)
WHERE key = (SELECT s.head FROM sessions AS s WHERE s.key = :session)

-- name: branch_claim
-- Record the open turn that holds a branch.
UPDATE branches SET open_turn = :position WHERE key = :branch

-- name: branch_release
-- Release a branch from a turn; no row if another turn holds it.
UPDATE branches SET open_turn = NULL WHERE key = :branch AND open_turn = :position RETURNING key

-- name: branch_get
-- Return a branch by its key.
SELECT b.key, b.number, b.session, b.parent, b.fork_at, CASE WHEN s.head = b.key THEN s.last ELSE b.last END AS last,
    b.open_turn, b.created_at
FROM branches AS b LEFT JOIN sessions AS s ON s.key = b.session
WHERE b.key = :branch

-- name: branch_by_number
-- Return a branch by its public number in a tree.
SELECT b.key, b.number, b.session, b.parent, b.fork_at, CASE WHEN s.head = b.key THEN s.last ELSE b.last END AS last,
    b.open_turn, b.created_at
FROM branches AS b LEFT JOIN sessions AS s ON s.key = b.session
WHERE b.tree = :tree AND b.number = :number

-- name: branches_of_session
-- Return the branches of a session, oldest first.
SELECT b.key, b.number, p.number AS parent_number, b.fork_at, CASE WHEN s.head = b.key THEN s.last ELSE b.last END AS last,
    b.created_at
FROM branches AS b
JOIN sessions AS s ON s.key = b.session
LEFT JOIN branches AS p ON p.key = b.parent
WHERE b.session = :session
ORDER BY b.number

-- name: branches_of_tree
-- Return the branches of a tree, a parent before its children.
SELECT key, number, session, parent, fork_at FROM branches WHERE tree = :tree ORDER BY key

-- name: branch_open
-- Return the open turn of a branch, if it has one.
SELECT key, number, open_turn FROM branches WHERE key = :branch AND open_turn IS NOT NULL

-- name: branches_open
-- Return the branches of a session that have an open turn.
SELECT key, number, open_turn FROM branches WHERE session = :session AND open_turn IS NOT NULL

-- name: branch_path
-- Return the spans of the path that ends with a branch, newest first.
WITH RECURSIVE path (key, number, parent, low, high, depth) AS (
    SELECT b.key, b.number, b.parent, b.fork_at, CASE WHEN s.head = b.key THEN s.last ELSE b.last END, 0
    FROM branches AS b LEFT JOIN sessions AS s ON s.key = b.session
    WHERE b.key = :branch
    UNION ALL
    SELECT b.key, b.number, b.parent, b.fork_at, p.low, p.depth + 1
    FROM path AS p JOIN branches AS b ON b.key = p.parent
)
SELECT key AS branch, number, low, high FROM path ORDER BY depth

-- name: branch_delete
-- Delete a branch.
DELETE FROM branches WHERE key = :branch
