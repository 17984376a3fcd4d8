-- name: tree_insert
INSERT INTO trees (owner) VALUES (:owner) RETURNING key

-- name: tree_branch
UPDATE trees SET branches = branches + 1 WHERE key = :tree RETURNING branches

-- name: tree_delete
DELETE FROM trees
WHERE key = :tree
    AND NOT EXISTS (SELECT 1 FROM sessions WHERE tree = :tree)
    AND NOT EXISTS (SELECT 1 FROM branches WHERE tree = :tree)

-- name: branch_insert
INSERT INTO branches (tree, number, session, parent, fork_at, last, created_at)
VALUES (:tree, :number, :session, :parent, :fork_at, :fork_at, :now)
RETURNING key

-- name: branch_advance
UPDATE branches SET last = last + :count WHERE key = :branch RETURNING last - :count, number, open_turn

-- name: branch_claim
UPDATE branches SET open_turn = :position WHERE key = :branch

-- name: branch_release
UPDATE branches SET open_turn = NULL WHERE key = :branch AND open_turn = :position

-- name: branch_get
SELECT key, number, session, parent, fork_at, last, open_turn, created_at FROM branches WHERE key = :branch

-- name: branch_by_number
SELECT key, number, session, parent, fork_at, last, open_turn, created_at
FROM branches WHERE tree = :tree AND number = :number

-- name: branches_of_session
SELECT b.key, b.number, p.number, b.fork_at, b.last, b.created_at
FROM branches AS b LEFT JOIN branches AS p ON p.key = b.parent
WHERE b.session = :session
ORDER BY b.number

-- name: branches_of_tree
SELECT key, number, session, parent, fork_at FROM branches WHERE tree = :tree ORDER BY key

-- name: branches_open
SELECT key, number, open_turn FROM branches WHERE session = :session AND open_turn IS NOT NULL

-- name: branch_path
WITH RECURSIVE path (key, number, parent, low, high, depth) AS (
    SELECT key, number, parent, fork_at, last, 0 FROM branches WHERE key = :branch
    UNION ALL
    SELECT b.key, b.number, b.parent, b.fork_at, p.low, p.depth + 1
    FROM path AS p JOIN branches AS b ON b.key = p.parent
)
SELECT key, number, low, high FROM path ORDER BY depth

-- name: branch_delete
DELETE FROM branches WHERE key = :branch
