-- shared: session_messages
-- Branches with their messages; CROSS JOIN makes SQLite read the branches first.
FROM branches AS b CROSS JOIN messages AS m ON m.key > (b.key << 32) AND m.key <= (b.key << 32) | 4294967295

-- shared: row_size
-- The bytes of a message.
octet_length(m.parts) + coalesce(octet_length(m.native), 0) + coalesce(octet_length(m.metadata), 0)
+ coalesce(octet_length(m.error), 0)

-- shared: version_size
-- The bytes of an earlier version of a message.
octet_length(v.parts) + coalesce(octet_length(v.native), 0) + coalesce(octet_length(v.metadata), 0)
+ coalesce(octet_length(v.error), 0)

-- shared: is_tool_step
-- Condition: a message is a tool step: a tool result, or an assistant message with a call that it does not answer
-- itself. Transcripts for people omit tool steps.
(m.role = 'tool' OR (m.role = 'assistant' AND EXISTS (
    SELECT 1 FROM tool_calls AS c WHERE c.message = m.key AND c.result IS NOT m.key
)))

-- shared: prune_columns
-- The columns by which pruning decides: times, pin and open turns.
key, id, title, max(active_at, coalesce(last_message_at, 0)) AS last_active_at, active_at AS listed_at, pinned_at,
open_turns, max(active_at, coalesce(last_message_at, 0), updated_at) AS touched_at

-- name: sessions_prunable
-- Return a page of sessions that pruning looks at, most recently active first.
SELECT {prune_columns}
FROM sessions INDEXED BY sessions_active
WHERE owner = :owner AND deleted_at IS NULL AND (active_at, key) < (:at, :key) AND NOT EXISTS (
    SELECT 1 FROM sessions AS p WHERE p.key = sessions.parent AND sessions.relation = 'delegate' AND p.deleted_at IS NULL
)
ORDER BY active_at DESC, key DESC LIMIT :limit

-- name: sessions_delegated
-- Return the delegates of a session.
SELECT key FROM sessions WHERE parent = :session AND relation = 'delegate' AND deleted_at IS NULL ORDER BY key

-- name: sessions_trashed
-- Return a page of sessions that were moved to the trash at or before a time.
SELECT {prune_columns}
FROM sessions INDEXED BY sessions_trash
WHERE owner = :owner AND deleted_at IS NOT NULL AND deleted_at <= :until AND key > :after
ORDER BY key LIMIT :limit

-- name: sessions_over_limit
-- Return a page of unpinned sessions with more messages than a limit.
SELECT key FROM sessions
WHERE key > :after AND +owner = :owner AND deleted_at IS NULL AND pinned_at IS NULL AND message_count > :max_messages
ORDER BY key LIMIT :limit

-- name: sessions_unpinned
-- Return a page of sessions in whose tree no session is pinned.
SELECT key FROM sessions
WHERE key > :after AND +owner = :owner AND deleted_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM sessions AS o WHERE o.tree = sessions.tree AND o.pinned_at IS NOT NULL AND o.deleted_at IS NULL
)
ORDER BY key LIMIT :limit

-- name: messages_total_size
-- Return the number of messages, bytes and tool steps of a session.
SELECT count(*) AS messages, coalesce(sum({row_size}), 0) + coalesce((
    SELECT sum({version_size})
    FROM branches AS b CROSS JOIN message_versions AS v
        ON v.message > (b.key << 32) AND v.message <= (b.key << 32) | 4294967295
    WHERE b.session = :session
), 0) AS bytes, coalesce(sum({is_tool_step}), 0) AS tool_steps
{session_messages}
WHERE b.session = :session

-- name: blobs_total_size
-- Add up the bytes of the blobs to which a session refers in messages and their earlier versions.
SELECT coalesce(sum(x.size), 0) + coalesce((
    SELECT sum(x.size) FROM branches AS b CROSS JOIN message_versions AS v
        ON v.message > (b.key << 32) AND v.message <= (b.key << 32) | 4294967295
    CROSS JOIN json_each(v.blobs) AS j CROSS JOIN blobs AS x ON x.owner = :owner AND x.hash = j.value
    WHERE b.session = :session AND v.blobs IS NOT NULL
), 0) AS bytes
{session_messages}
CROSS JOIN json_each(m.blobs) AS j CROSS JOIN blobs AS x ON x.owner = :owner AND x.hash = j.value
WHERE b.session = :session AND m.blobs IS NOT NULL

-- name: messages_outline
-- Return the position, role and turn of messages of a span, except system messages.
SELECT key & 4294967295 AS position, role, turn FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND deleted_at IS NULL AND role <> 'system'
ORDER BY key LIMIT :limit

-- name: messages_mark_deleted
-- Mark the messages of a span as deleted, except system messages; return their tokens.
UPDATE messages SET deleted_at = :now
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND deleted_at IS NULL AND role <> 'system'
RETURNING tokens, coalesce(input_tokens, 0) AS input_tokens, coalesce(output_tokens, 0) AS output_tokens

-- name: messages_large
-- Return a page of messages with large tool outputs or with blobs, in their content or in an earlier version.
SELECT b.key AS branch, b.number, m.key & 4294967295 AS position
{session_messages}
WHERE b.session = :session AND (b.key, m.key & 4294967295) > (:branch, :position) AND (
    ((octet_length(m.parts) > :min_bytes OR m.blobs IS NOT NULL) AND instr(m.parts, '"kind":"tool_result"'))
    OR EXISTS (
        SELECT 1 FROM message_versions AS v WHERE v.message = m.key
            AND (octet_length(v.parts) > :min_bytes OR v.blobs IS NOT NULL) AND instr(v.parts, '"kind":"tool_result"')
    )
)
ORDER BY b.key, m.key LIMIT :limit

-- name: message_replace_parts
-- Replace the parts of a message after a tool output was dropped.
UPDATE messages SET parts = :parts, tokens = :tokens, blobs = :blobs, edited_at = :edited_at
WHERE key = (:branch << 32) | :position
