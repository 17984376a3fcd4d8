-- shared: session_filter
-- Condition: the session is on the current page of statistics and passes the filters.
(s.tree, s.number) > (:after::bigint >> 20, (:after::bigint & 1048575)::int)
AND (s.tree, s.number) <= (:last::bigint >> 20, (:last::bigint & 1048575)::int)
AND s.owner = :owner AND s.deleted_at IS NULL AND s.updated_at >= :since::bigint
AND (:channel::text IS NULL OR s.channel = :channel::text) AND (:model::text IS NULL OR s.model = :model::text)

-- shared: sessions_with_branches
-- Each session with its branches.
recollect.sessions AS s JOIN recollect.branches AS b ON b.tree = s.tree AND b.session = s.number

-- shared: is_tool_step
-- Condition: a message is a tool step: a tool result, or an assistant message with a call that it does not answer
-- itself. Transcripts for people omit tool steps.
(m.role = 'tool' OR (m.role = 'assistant' AND EXISTS (
    SELECT 1 FROM recollect.tool_calls AS c
    WHERE c.tree = m.tree AND c.message_branch = m.branch AND c.message_position = m.position
        AND (c.result IS NULL OR c.branch <> m.branch OR c.result <> m.position)
    OFFSET 0
)))

-- name: sessions_counted
-- Return a page of sessions that statistics count.
SELECT (s.tree << 20) | s.number AS key, s.channel, s.model FROM recollect.sessions AS s
WHERE {session_filter} ORDER BY s.tree, s.number LIMIT :limit

-- name: messages_tally
-- Add up messages and tokens by session, model and day.
SELECT (s.tree << 20) | s.number AS session, m.model, (m.created_at + :offset::bigint) / 86400000 AS day,
    count(*) AS messages, sum(m.tokens) AS tokens,
    coalesce(sum(m.input_tokens) FILTER (WHERE m.turn IS NULL), 0) AS input_tokens,
    coalesce(sum(m.output_tokens) FILTER (WHERE m.turn IS NULL), 0) AS output_tokens,
    count(*) FILTER (WHERE {is_tool_step}) AS tool_steps
FROM {sessions_with_branches} JOIN recollect.messages AS m ON m.tree = b.tree AND m.branch = b.number
WHERE {session_filter} AND m.created_at >= :since::bigint AND m.created_at < :until::bigint AND m.deleted_at IS NULL
GROUP BY 1, 2, 3

-- name: turns_tally
-- Add up turns and tokens by session, model, day and status.
SELECT (s.tree << 20) | s.number AS session, t.model, (t.started_at + :offset::bigint) / 86400000 AS day, t.status,
    count(*) AS turns, coalesce(sum(t.input_tokens), 0) AS input_tokens,
    coalesce(sum(t.output_tokens), 0) AS output_tokens
FROM {sessions_with_branches} JOIN recollect.turns AS t ON t.tree = b.tree AND t.branch = b.number
WHERE {session_filter} AND t.started_at >= :since::bigint AND t.started_at < :until::bigint
GROUP BY 1, 2, 3, 4

-- name: tool_calls_tally
-- Count tool calls and failures.
SELECT count(*) AS calls, count(*) FILTER (WHERE t.status = 'error') AS failures
FROM {sessions_with_branches} JOIN recollect.tool_calls AS t ON t.tree = b.tree AND t.message_branch = b.number
WHERE {session_filter} AND t.created_at >= :since::bigint AND t.created_at < :until::bigint

-- name: tool_calls_ranked
-- Return tool calls by tool and period, with failures and latency percentiles.
WITH calls (tool, local_time, status, latency) AS (
    SELECT t.tool, to_timestamp((t.created_at + :offset::bigint) / 1000) AT TIME ZONE 'UTC',
        t.status, CASE WHEN t.status IN ('success', 'error') THEN t.latency_ms END
    FROM {sessions_with_branches} JOIN recollect.tool_calls AS t ON t.tree = b.tree AND t.message_branch = b.number
    WHERE s.owner = :owner AND s.deleted_at IS NULL AND s.updated_at >= :since::bigint
        AND t.created_at >= :since::bigint AND t.created_at < :until::bigint
        AND (:tool::text IS NULL OR t.tool = :tool::text)
), dated_calls (tool, period, status, latency) AS (
    SELECT tool,
        CASE :period::text
            WHEN 'day' THEN to_char(local_time, 'YYYY-MM-DD')
            WHEN 'week' THEN to_char(date_trunc('week', local_time), 'YYYY-MM-DD')
            WHEN 'month' THEN to_char(local_time, 'YYYY-MM')
        END COLLATE "C",
        status, latency
    FROM calls
), ranked_calls AS (
    SELECT tool, period, status, latency,
        row_number() OVER (PARTITION BY tool, period ORDER BY latency NULLS LAST) AS latency_rank,
        count(latency) OVER (PARTITION BY tool, period) AS latency_count
    FROM dated_calls
)
SELECT tool, period, count(*) AS calls, count(*) FILTER (WHERE status = 'error') AS failures,
    count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE status IN ('pending', 'running')) AS open_calls,
    max(latency) FILTER (WHERE latency_rank = (latency_count * 50 + 99) / 100) AS p50_ms,
    max(latency) FILTER (WHERE latency_rank = (latency_count * 95 + 99) / 100) AS p95_ms
FROM ranked_calls GROUP BY tool, period ORDER BY period, tool
