-- shared: compaction_columns
-- The columns of a compaction.
c.key, c.branch, c.from_position, c.to_position, c.round, c.tokens_before, c.tokens_after, c.summary, c.created_at,
c.undone_at

-- name: compactions_of_branch
-- Return the compactions of a branch.
SELECT {compaction_columns} FROM compactions AS c INDEXED BY compactions_branch WHERE c.branch = :branch

-- name: compaction_insert
-- Insert a compaction of a branch.
INSERT INTO compactions (
    branch, from_position, to_position, round, tokens_before, tokens_after, summary, created_at
) VALUES (
    :branch, :from_position, :to_position, :round, :tokens_before, :tokens_after, :summary, :now
)
RETURNING key

-- name: compaction_undo
-- Mark a compaction as undone.
UPDATE compactions SET undone_at = :now WHERE key = :key AND branch = :branch

-- name: compactions_inherit
-- Copy the compactions of the shared past to a new branch.
INSERT INTO compactions (
    branch, from_position, to_position, round, tokens_before, tokens_after, summary, created_at
)
SELECT :branch, c.from_position, c.to_position, c.round, c.tokens_before, c.tokens_after, c.summary, c.created_at
FROM compactions AS c INDEXED BY compactions_branch
WHERE c.branch = :origin AND c.to_position <= :until AND c.undone_at IS NULL

-- name: compactions_erase
-- Delete the compactions of a branch.
DELETE FROM compactions WHERE branch = :branch
