-- shared: path_cte
-- The branch segments of the path that ends with a branch; depth 0 is the branch itself.
path (key, number, parent, low, high, depth) AS (
    SELECT b.key, b.number, b.parent, b.fork_at, CASE WHEN s.head = b.key THEN s.last ELSE b.last END, 0
    FROM branches AS b LEFT JOIN sessions AS s ON s.key = b.session
    WHERE b.key = :branch
    UNION ALL
    SELECT b.key, b.number, b.parent, b.fork_at, p.low, p.depth + 1
    FROM path AS p JOIN branches AS b ON b.key = p.parent
)

-- shared: open_calls
-- The calls on the path that have no result on the branch.
SELECT t.message, t.part, t.branch
FROM path AS p CROSS JOIN tool_calls AS t ON t.message > (p.key << 32) | p.low AND t.message <= (p.key << 32) | p.high
WHERE t.branch = :branch AND t.result IS NULL

-- shared: is_call_of_turn
-- Condition: a message of the turn made the call.
t.message >> 32 = :branch AND EXISTS (SELECT 1 FROM messages AS m WHERE m.key = t.message AND m.turn = :position)

-- shared: is_call_since_turn
-- Condition: the call was started after the turn.
t.started_at >= (SELECT u.started_at FROM turns AS u WHERE u.key = (:branch << 32) | :position)

-- name: tool_call_insert
-- Insert a tool call, or update its status and result.
INSERT INTO tool_calls (
    message, part, branch, call_id, tool, status, result, result_part, created_at, started_at, completed_at,
    latency_ms, error_code, error_message
) VALUES ((? << 32) | ?, ?, ?, ?, ?, ?, (? << 32) | ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (message, part, branch) DO UPDATE
SET status = excluded.status, result = excluded.result, result_part = excluded.result_part,
    started_at = excluded.started_at, completed_at = excluded.completed_at, latency_ms = excluded.latency_ms,
    error_code = excluded.error_code, error_message = excluded.error_message

-- name: tool_calls_newest
-- Return the calls with an id from the newest message of a span that has one.
SELECT
    t.message & 4294967295 AS position, t.part, t.branch AS answer_branch, t.call_id, t.tool, t.result & 4294967295 AS result,
    t.result_part, t.created_at, t.started_at
FROM tool_calls AS t
WHERE t.call_id = :call_id AND t.message = (
    SELECT n.message FROM tool_calls AS n
    WHERE n.message > (:branch << 32) | :low AND n.message <= (:branch << 32) | :high AND n.call_id = :call_id
    ORDER BY n.message DESC LIMIT 1
)
ORDER BY t.part DESC

-- name: tool_calls_of_path
-- Return the tool calls of a path, oldest first, with their results on it.
WITH RECURSIVE {path_cte}
SELECT
    t.message >> 32 AS branch, m.number, t.message & 4294967295 AS position, t.part, t.call_id, t.tool, t.status,
    CASE WHEN (t.result & 4294967295) <= a.high THEN t.result & 4294967295 END AS result, t.result_part, t.created_at,
    t.started_at, t.completed_at, t.latency_ms, t.error_code, t.error_message, a.number AS answer_number
FROM path AS m
JOIN tool_calls AS t ON t.message > (m.key << 32) | m.low AND t.message <= (m.key << 32) | m.high
JOIN path AS a ON a.key = t.branch
ORDER BY m.depth DESC, t.message, t.part, a.depth

-- name: tool_calls_answered
-- Return the calls of a span whose result is in a message, the newest first.
SELECT message & 4294967295 AS position, part, branch, call_id, tool, status, result & 4294967295 AS result, result_part,
    created_at, started_at, completed_at, latency_ms, error_code, error_message
FROM tool_calls
WHERE message > (:call_branch << 32) | :low AND message <= (:call_branch << 32) | :high AND branch = :branch
    AND result = (:branch << 32) | :position
ORDER BY message DESC, part DESC LIMIT :limit

-- name: tool_calls_delete
-- Delete the tool calls of a message.
DELETE FROM tool_calls WHERE message = (:branch << 32) | :position

-- name: tool_calls_erase
-- Delete the tool calls of messages of a branch after a position.
DELETE FROM tool_calls
WHERE message > (:branch << 32) | :low AND message <= (:branch << 32) | 4294967295

-- name: tool_calls_erase_answers
-- Delete the rows in which a branch answers calls of another branch.
DELETE FROM tool_calls
WHERE branch = :branch AND message > (:parent << 32) AND message <= (:parent << 32) | 4294967295

-- name: tool_calls_reopen
-- Reopen calls whose results are about to be erased.
UPDATE tool_calls
SET status = 'pending', result = NULL, result_part = NULL, completed_at = NULL, latency_ms = NULL,
    error_code = NULL, error_message = NULL
WHERE message > (:branch << 32) AND message <= (:branch << 32) | :low AND branch = :branch
    AND result > (:branch << 32) | :low

-- name: tool_calls_cancel
-- Cancel the open tool calls of a turn that ends.
WITH RECURSIVE {path_cte}
UPDATE tool_calls SET status = 'cancelled', completed_at = :now, error_code = :code, error_message = :message
WHERE (message, part, branch) IN (
    {open_calls}
    AND ((t.status = 'pending' AND {is_call_of_turn}) OR (t.status = 'running' AND ({is_call_of_turn} OR {is_call_since_turn})))
)

-- name: tool_calls_resume
-- Reopen the cancelled calls of a turn that continues.
WITH RECURSIVE {path_cte}
UPDATE tool_calls
SET status = CASE WHEN started_at IS NULL THEN 'pending' ELSE 'running' END, completed_at = NULL, error_code = NULL,
    error_message = NULL
WHERE (message, part, branch) IN (
    {open_calls}
    AND t.status = 'cancelled' AND ({is_call_of_turn} OR {is_call_since_turn})
)
