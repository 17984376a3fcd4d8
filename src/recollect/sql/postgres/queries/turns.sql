-- shared: turn_columns
-- The columns of a turn.
position, status, started_at, ended_at, latency_ms, input_tokens, output_tokens, model, error, holder, lease_until

-- shared: on_branch
-- Condition: the row belongs to the branch with the key :branch.
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int

-- name: turn_insert
-- Insert a turn.
INSERT INTO recollect.turns (
    tree, branch, position, status, started_at, ended_at, latency_ms, input_tokens, output_tokens, model, error, holder,
    lease_until
) VALUES (?1::bigint >> 20, (?1::bigint & 1048575)::int, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)

-- name: turn_get_lock
-- Lock the rows that turn_get reads.
SELECT s.number FROM recollect.sessions AS s
WHERE s.tree = :branch::bigint >> 20 AND s.number = (
    SELECT b.session FROM recollect.branches AS b
    WHERE b.tree = :branch::bigint >> 20 AND b.number = (:branch::bigint & 1048575)::int
)
FOR NO KEY UPDATE

-- name: turn_get
-- Return a turn; locks the session if the operation writes.
SELECT {turn_columns} FROM recollect.turns WHERE {on_branch} AND position = :position

-- name: turns_of_span
-- Return the turns that begin in a span.
SELECT {turn_columns} FROM recollect.turns WHERE {on_branch} AND position > :low::bigint AND position <= :high::bigint
ORDER BY position

-- name: turn_after
-- Return the position of a later turn on the same branch, if there is one.
SELECT position FROM recollect.turns WHERE {on_branch} AND position > :position LIMIT 1

-- name: turn_renew
-- Renew the lease of a turn and add its usage.
UPDATE recollect.turns
SET status = 'open', ended_at = NULL, latency_ms = NULL, holder = :holder, lease_until = :lease_until,
    input_tokens = CASE WHEN :input_tokens::bigint IS NULL THEN input_tokens
        ELSE coalesce(input_tokens, 0) + :input_tokens::bigint END,
    output_tokens = CASE WHEN :output_tokens::bigint IS NULL THEN output_tokens
        ELSE coalesce(output_tokens, 0) + :output_tokens::bigint END,
    model = coalesce(:model, model)
WHERE {on_branch} AND position = :position

-- name: turn_end
-- End a turn and return it.
UPDATE recollect.turns
SET status = :status, ended_at = :now::bigint,
    latency_ms = coalesce(:latency_ms, greatest(:now::bigint - started_at, 0)),
    input_tokens = coalesce(:input_tokens, input_tokens), output_tokens = coalesce(:output_tokens, output_tokens),
    model = coalesce(:model, model), error = coalesce(:error, error), holder = NULL, lease_until = NULL
WHERE {on_branch} AND position = :position AND status IN ('open', 'interrupted')
RETURNING {turn_columns}

-- name: turns_erase
-- Delete the turns of a branch after a position.
DELETE FROM recollect.turns WHERE {on_branch} AND position > :low
