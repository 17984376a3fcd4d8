-- shared: path_cte
-- The branch segments of the path that ends with a branch; depth 0 is the branch itself.
path (tree, number, parent, low, high, depth) AS (
    SELECT b.tree, b.number, b.parent, b.fork_at, CASE WHEN s.branch = b.number THEN s.last ELSE b.last END, 0
    FROM recollect.branches AS b LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
    WHERE b.tree = :branch::bigint >> 20 AND b.number = (:branch::bigint & 1048575)::int
    UNION ALL
    SELECT b.tree, b.number, b.parent, b.fork_at, p.low, p.depth + 1
    FROM path AS p JOIN recollect.branches AS b ON b.tree = p.tree AND b.number = p.parent
)

-- shared: open_calls
-- The calls on the path that have no result on the branch.
SELECT t.tree, t.message_branch, t.message_position, t.part, t.branch
FROM path AS p JOIN recollect.tool_calls AS t ON t.tree = p.tree AND t.message_branch = p.number
    AND t.message_position > p.low AND t.message_position <= p.high
WHERE t.branch = (:branch::bigint & 1048575)::int AND t.result IS NULL

-- shared: is_call_of_turn
-- Condition: a message of the turn made the call.
t.message_branch = t.branch AND EXISTS (
    SELECT 1 FROM recollect.messages AS m
    WHERE m.tree = t.tree AND m.branch = t.branch AND m.position = t.message_position AND m.turn = :position::int
)

-- shared: is_call_since_turn
-- Condition: the call was started after the turn.
t.started_at >= (
    SELECT u.started_at FROM recollect.turns AS u
    WHERE u.tree = t.tree AND u.branch = t.branch AND u.position = :position::int
)

-- name: tool_call_insert
-- Insert a tool call, or update its status and result.
INSERT INTO recollect.tool_calls (
    tree, message_branch, message_position, part, branch, call_id, tool, status, result, result_part, created_at,
    started_at, completed_at, latency_ms, error_code, error_message
) VALUES (?1::bigint >> 20, (?1::bigint & 1048575)::int, ?2, ?3, (?4::bigint & 1048575)::int, ?5, ?6, ?7,
    CASE WHEN ?8::bigint IS NOT NULL THEN ?9::int END, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
ON CONFLICT (tree, message_branch, message_position, part, branch) DO UPDATE
SET status = excluded.status, result = excluded.result, result_part = excluded.result_part,
    started_at = excluded.started_at, completed_at = excluded.completed_at, latency_ms = excluded.latency_ms,
    error_code = excluded.error_code, error_message = excluded.error_message

-- name: tool_calls_newest
-- Return the calls with an id from the newest message of a span that has one.
SELECT
    t.message_position AS position, t.part, (t.tree << 20) | t.branch AS answer_branch, t.call_id, t.tool, t.result,
    t.result_part, t.created_at, t.started_at
FROM recollect.tool_calls AS t
WHERE t.tree = :branch::bigint >> 20 AND t.message_branch = (:branch::bigint & 1048575)::int AND t.call_id = :call_id
    AND t.message_position = (
        SELECT n.message_position FROM recollect.tool_calls AS n
        WHERE n.tree = :branch::bigint >> 20 AND n.message_branch = (:branch::bigint & 1048575)::int
            AND n.message_position > :low::bigint AND n.message_position <= :high::bigint AND n.call_id = :call_id
        ORDER BY n.message_position DESC LIMIT 1
    )
ORDER BY t.part DESC

-- name: tool_calls_of_path
-- Return the tool calls of a path, oldest first, with their results on it.
WITH RECURSIVE {path_cte}
SELECT
    (m.tree << 20) | m.number AS branch, m.number, t.message_position AS position, t.part, t.call_id, t.tool, t.status,
    CASE WHEN t.result <= a.high THEN t.result END AS result, t.result_part, t.created_at,
    t.started_at, t.completed_at, t.latency_ms, t.error_code, t.error_message, a.number AS answer_number
FROM path AS m
JOIN recollect.tool_calls AS t ON t.tree = m.tree AND t.message_branch = m.number
    AND t.message_position > m.low AND t.message_position <= m.high
JOIN path AS a ON a.number = t.branch
ORDER BY m.depth DESC, t.message_position, t.part, a.depth

-- name: tool_calls_answered
-- Return the calls of a span whose result is in a message, the newest first.
SELECT message_position AS position, part, (tree << 20) | branch AS branch, call_id, tool, status, result, result_part,
    created_at, started_at, completed_at, latency_ms, error_code, error_message
FROM recollect.tool_calls
WHERE tree = :call_branch::bigint >> 20 AND message_branch = (:call_branch::bigint & 1048575)::int
    AND message_position > :low::bigint AND message_position <= :high::bigint
    AND branch = (:branch::bigint & 1048575)::int AND result = :position::bigint
ORDER BY message_position DESC, part DESC LIMIT :limit

-- name: tool_calls_delete
-- Delete the tool calls of a message.
DELETE FROM recollect.tool_calls
WHERE tree = :branch::bigint >> 20 AND message_branch = (:branch::bigint & 1048575)::int AND message_position = :position

-- name: tool_calls_erase
-- Delete the tool calls of messages of a branch after a position.
DELETE FROM recollect.tool_calls
WHERE tree = :branch::bigint >> 20 AND message_branch = (:branch::bigint & 1048575)::int AND message_position > :low

-- name: tool_calls_erase_answers
-- Delete the rows in which a branch answers calls of another branch.
DELETE FROM recollect.tool_calls
WHERE tree = :parent::bigint >> 20 AND message_branch = (:parent::bigint & 1048575)::int
    AND branch = (:branch::bigint & 1048575)::int

-- name: tool_calls_reopen
-- Reopen calls whose results are about to be erased.
UPDATE recollect.tool_calls
SET status = 'pending', result = NULL, result_part = NULL, completed_at = NULL, latency_ms = NULL,
    error_code = NULL, error_message = NULL
WHERE tree = :branch::bigint >> 20 AND message_branch = (:branch::bigint & 1048575)::int AND message_position <= :low
    AND branch = (:branch::bigint & 1048575)::int AND result > :low

-- name: tool_calls_cancel
-- Cancel the open tool calls of a turn that ends.
UPDATE recollect.tool_calls SET status = 'cancelled', completed_at = :now, error_code = :code, error_message = :message
WHERE (tree, message_branch, message_position, part, branch) IN (
    WITH RECURSIVE {path_cte}
    {open_calls}
    AND ((t.status = 'pending' AND {is_call_of_turn}) OR (t.status = 'running' AND ({is_call_of_turn} OR {is_call_since_turn})))
)

-- name: tool_calls_resume
-- Reopen the cancelled calls of a turn that continues.
UPDATE recollect.tool_calls
SET status = CASE WHEN started_at IS NULL THEN 'pending' ELSE 'running' END, completed_at = NULL, error_code = NULL,
    error_message = NULL
WHERE (tree, message_branch, message_position, part, branch) IN (
    WITH RECURSIVE {path_cte}
    {open_calls}
    AND t.status = 'cancelled' AND ({is_call_of_turn} OR {is_call_since_turn})
)
