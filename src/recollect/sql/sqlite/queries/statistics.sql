-- shared: session_filter
-- Condition: the session is on the current page of statistics and passes the filters. The + keeps SQLite from choosing
-- the index on the owner over the key.
s.key > :after AND s.key <= :last AND +s.owner = :owner AND s.deleted_at IS NULL AND s.updated_at >= :since
AND (:channel IS NULL OR s.channel = :channel) AND (:model IS NULL OR s.model = :model)

-- shared: is_tool_step
-- Condition: a message is a tool step: a tool result, or an assistant message with a call that it does not answer
-- itself. Transcripts for people omit tool steps.
(m.role = 'tool' OR (m.role = 'assistant' AND EXISTS (
    SELECT 1 FROM tool_calls AS c WHERE c.message = m.key AND c.result IS NOT m.key
)))

-- name: sessions_counted
-- Return a page of sessions that statistics count.
SELECT s.key, s.channel, s.model FROM sessions AS s WHERE {session_filter} ORDER BY s.key LIMIT :limit

-- name: messages_tally
-- Add up messages and tokens by session, model and day.
SELECT s.key AS session, m.model, (m.created_at + :offset) / 86400000 AS day, count(*) AS messages, sum(m.tokens) AS tokens,
    coalesce(sum(CASE WHEN m.turn IS NULL THEN m.input_tokens END), 0) AS input_tokens,
    coalesce(sum(CASE WHEN m.turn IS NULL THEN m.output_tokens END), 0) AS output_tokens,
    sum({is_tool_step}) AS tool_steps
FROM sessions AS s CROSS JOIN branches AS b ON b.session = s.key
CROSS JOIN messages AS m ON m.key > (b.key << 32) AND m.key <= (b.key << 32) | 4294967295
WHERE {session_filter} AND m.created_at >= :since AND m.created_at < :until AND m.deleted_at IS NULL
GROUP BY 1, 2, 3

-- name: turns_tally
-- Add up turns and tokens by session, model, day and status.
SELECT s.key AS session, t.model, (t.started_at + :offset) / 86400000 AS day, t.status, count(*) AS turns,
    coalesce(sum(t.input_tokens), 0) AS input_tokens, coalesce(sum(t.output_tokens), 0) AS output_tokens
FROM sessions AS s CROSS JOIN branches AS b ON b.session = s.key
CROSS JOIN turns AS t ON t.key > (b.key << 32) AND t.key <= (b.key << 32) | 4294967295
WHERE {session_filter} AND t.started_at >= :since AND t.started_at < :until
GROUP BY 1, 2, 3, 4

-- name: tool_calls_tally
-- Count tool calls and failures.
SELECT count(*) AS calls, coalesce(sum(t.status = 'error'), 0) AS failures
FROM sessions AS s CROSS JOIN branches AS b ON b.session = s.key
CROSS JOIN tool_calls AS t ON t.message > (b.key << 32) AND t.message <= (b.key << 32) | 4294967295
WHERE {session_filter} AND t.created_at >= :since AND t.created_at < :until

-- name: tool_calls_ranked
-- Return tool calls by tool and period, with failures and latency percentiles.
WITH calls (tool, period, status, latency) AS (
    SELECT t.tool,
        CASE :period
            WHEN 'day' THEN date((t.created_at + :offset) / 1000, 'unixepoch')
            WHEN 'week' THEN date((t.created_at + :offset) / 1000, 'unixepoch', 'weekday 0', '-6 days')
            WHEN 'month' THEN strftime('%Y-%m', (t.created_at + :offset) / 1000, 'unixepoch')
        END,
        t.status, CASE WHEN t.status IN ('success', 'error') THEN t.latency_ms END
    FROM sessions AS s CROSS JOIN branches AS b ON b.session = s.key
    CROSS JOIN tool_calls AS t ON t.message > (b.key << 32) AND t.message <= (b.key << 32) | 4294967295
    WHERE s.owner = :owner AND s.deleted_at IS NULL AND s.updated_at >= :since
        AND t.created_at >= :since AND t.created_at < :until AND (:tool IS NULL OR t.tool = :tool)
), ranked_calls AS (
    SELECT tool, period, status, latency,
        row_number() OVER (PARTITION BY tool, period ORDER BY latency NULLS LAST) AS latency_rank,
        count(latency) OVER (PARTITION BY tool, period) AS latency_count
    FROM calls
)
SELECT tool, period, count(*) AS calls, sum(status = 'error') AS failures, sum(status = 'cancelled') AS cancelled,
    sum(status IN ('pending', 'running')) AS open_calls,
    max(CASE WHEN latency_rank = (latency_count * 50 + 99) / 100 THEN latency END) AS p50_ms,
    max(CASE WHEN latency_rank = (latency_count * 95 + 99) / 100 THEN latency END) AS p95_ms
FROM ranked_calls GROUP BY tool, period ORDER BY period, tool
