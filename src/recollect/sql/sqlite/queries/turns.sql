-- shared: turn_columns
-- The columns of a turn.
key & 4294967295 AS position, status, started_at, ended_at, latency_ms, input_tokens, output_tokens, model, error, holder,
lease_until

-- name: turn_insert
-- Insert a turn.
INSERT INTO turns (
    key, status, started_at, ended_at, latency_ms, input_tokens, output_tokens, model, error, holder, lease_until
) VALUES ((? << 32) | ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: turn_get
-- Return a turn; locks the session if the operation writes.
SELECT {turn_columns}
FROM turns WHERE key = (:branch << 32) | :position

-- name: turns_of_span
-- Return the turns that begin in a span.
SELECT {turn_columns}
FROM turns WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high
ORDER BY key

-- name: turn_after
-- Return the position of a later turn on the same branch, if there is one.
SELECT key & 4294967295 AS position FROM turns WHERE key > (:branch << 32) | :position AND key <= (:branch << 32) | 4294967295
LIMIT 1

-- name: turn_renew
-- Renew the lease of a turn and add its usage.
UPDATE turns
SET status = 'open', ended_at = NULL, latency_ms = NULL, holder = :holder, lease_until = :lease_until,
    input_tokens = CASE WHEN :input_tokens IS NULL THEN input_tokens
        ELSE coalesce(input_tokens, 0) + :input_tokens END,
    output_tokens = CASE WHEN :output_tokens IS NULL THEN output_tokens
        ELSE coalesce(output_tokens, 0) + :output_tokens END,
    model = coalesce(:model, model)
WHERE key = (:branch << 32) | :position

-- name: turn_end
-- End a turn and return it.
UPDATE turns
SET status = :status, ended_at = :now, latency_ms = coalesce(:latency_ms, max(:now - started_at, 0)),
    input_tokens = coalesce(:input_tokens, input_tokens), output_tokens = coalesce(:output_tokens, output_tokens),
    model = coalesce(:model, model), error = coalesce(:error, error), holder = NULL, lease_until = NULL
WHERE key = (:branch << 32) | :position AND status IN ('open', 'interrupted')
RETURNING {turn_columns}

-- name: turns_erase
-- Delete the turns of a branch after a position.
DELETE FROM turns WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | 4294967295
