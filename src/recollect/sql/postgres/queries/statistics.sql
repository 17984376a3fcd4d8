-- shared: counted
(s.tree, s.number) > (:after::bigint >> 20, (:after::bigint & 1048575)::int)
AND (s.tree, s.number) <= (:last::bigint >> 20, (:last::bigint & 1048575)::int)
AND s.owner = :owner AND s.deleted_at IS NULL AND s.updated_at >= :since::bigint
AND (:channel::text IS NULL OR s.channel = :channel::text) AND (:model::text IS NULL OR s.model = :model::text)

-- shared: own
recollect.sessions AS s JOIN recollect.branches AS b ON b.tree = s.tree AND b.session = s.number

-- shared: step
(m.role = 'tool' OR (m.role = 'assistant' AND EXISTS (
    SELECT 1 FROM recollect.tool_calls AS c
    WHERE c.tree = m.tree AND c.message_branch = m.branch AND c.message_position = m.position
        AND (c.result IS NULL OR c.branch <> m.branch OR c.result <> m.position)
    OFFSET 0
)))

-- name: sessions_counted
SELECT (s.tree << 20) | s.number, s.channel, s.model FROM recollect.sessions AS s
WHERE {counted} ORDER BY s.tree, s.number LIMIT :limit

-- name: messages_tally
SELECT (s.tree << 20) | s.number, m.model, (m.created_at + :offset::bigint) / 86400000, count(*), sum(m.tokens),
    coalesce(sum(m.input_tokens) FILTER (WHERE m.turn IS NULL), 0),
    coalesce(sum(m.output_tokens) FILTER (WHERE m.turn IS NULL), 0),
    count(*) FILTER (WHERE {step})
FROM {own} JOIN recollect.messages AS m ON m.tree = b.tree AND m.branch = b.number
WHERE {counted} AND m.created_at >= :since::bigint AND m.created_at < :until::bigint AND m.deleted_at IS NULL
GROUP BY 1, 2, 3

-- name: turns_tally
SELECT (s.tree << 20) | s.number, t.model, (t.started_at + :offset::bigint) / 86400000, t.status, count(*),
    coalesce(sum(t.input_tokens), 0), coalesce(sum(t.output_tokens), 0)
FROM {own} JOIN recollect.turns AS t ON t.tree = b.tree AND t.branch = b.number
WHERE {counted} AND t.started_at >= :since::bigint AND t.started_at < :until::bigint
GROUP BY 1, 2, 3, 4

-- name: tool_calls_tally
SELECT count(*), count(*) FILTER (WHERE t.status = 'error')
FROM {own} JOIN recollect.tool_calls AS t ON t.tree = b.tree AND t.message_branch = b.number
WHERE {counted} AND t.created_at >= :since::bigint AND t.created_at < :until::bigint

-- name: tool_calls_ranked
WITH calls (tool, at, status, latency) AS (
    SELECT t.tool, to_timestamp((t.created_at + :offset::bigint) / 1000) AT TIME ZONE 'UTC',
        t.status, CASE WHEN t.status IN ('success', 'error') THEN t.latency_ms END
    FROM {own} JOIN recollect.tool_calls AS t ON t.tree = b.tree AND t.message_branch = b.number
    WHERE s.owner = :owner AND s.deleted_at IS NULL AND s.updated_at >= :since::bigint
        AND t.created_at >= :since::bigint AND t.created_at < :until::bigint
        AND (:tool::text IS NULL OR t.tool = :tool::text)
), dated (tool, period, status, latency) AS (
    SELECT tool,
        CASE :period::text
            WHEN 'day' THEN to_char(at, 'YYYY-MM-DD')
            WHEN 'week' THEN to_char(date_trunc('week', at), 'YYYY-MM-DD')
            WHEN 'month' THEN to_char(at, 'YYYY-MM')
        END COLLATE "C",
        status, latency
    FROM calls
), ranked AS (
    SELECT tool, period, status, latency,
        row_number() OVER (PARTITION BY tool, period ORDER BY latency NULLS LAST) AS place,
        count(latency) OVER (PARTITION BY tool, period) AS measured
    FROM dated
)
SELECT tool, period, count(*), count(*) FILTER (WHERE status = 'error'), count(*) FILTER (WHERE status = 'canceled'),
    count(*) FILTER (WHERE status IN ('pending', 'running')),
    max(latency) FILTER (WHERE place = (measured * 50 + 99) / 100),
    max(latency) FILTER (WHERE place = (measured * 95 + 99) / 100)
FROM ranked GROUP BY tool, period ORDER BY period, tool
