-- shared: on_branch
-- Condition: the row belongs to the branch with the key :branch.
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int

-- name: compactions_of_branch
-- Return the compactions of a branch.
SELECT number AS key, (tree << 20) | branch AS branch, from_position, to_position, round, tokens_before, tokens_after, summary,
    created_at, undone_at
FROM recollect.compactions WHERE {on_branch}

-- name: compaction_insert
-- Insert a compaction of a branch.
INSERT INTO recollect.compactions (
    tree, branch, from_position, to_position, round, tokens_before, tokens_after, summary, created_at
) VALUES (
    :branch::bigint >> 20, (:branch::bigint & 1048575)::int, :from_position, :to_position, :round, :tokens_before,
    :tokens_after, :summary, :now
)
RETURNING number

-- name: compaction_undo
-- Mark a compaction as undone.
UPDATE recollect.compactions SET undone_at = :now WHERE {on_branch} AND number = :key

-- name: compactions_inherit
-- Copy the compactions of the shared past to a new branch.
INSERT INTO recollect.compactions (
    tree, branch, from_position, to_position, round, tokens_before, tokens_after, summary, created_at
)
SELECT c.tree, (:branch::bigint & 1048575)::int, c.from_position, c.to_position, c.round, c.tokens_before,
    c.tokens_after, c.summary, c.created_at
FROM recollect.compactions AS c
WHERE c.tree = :origin::bigint >> 20 AND c.branch = (:origin::bigint & 1048575)::int
    AND c.to_position <= :until::bigint AND c.undone_at IS NULL

-- name: compactions_erase
-- Delete the compactions of a branch.
DELETE FROM recollect.compactions WHERE {on_branch}
