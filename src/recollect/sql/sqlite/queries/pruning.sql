-- shared: own
FROM branches AS b CROSS JOIN messages AS m ON m.key > (b.key << 32) AND m.key <= (b.key << 32) | 4294967295

-- shared: step
(m.role = 'tool' OR (m.role = 'assistant' AND EXISTS (
    SELECT 1 FROM tool_calls AS c WHERE c.message = m.key AND c.result IS NOT m.key
)))

-- name: sessions_resting
SELECT key, id, title, max(active_at, coalesce(last_message_at, 0)), active_at, pinned_at, open_turns,
    max(active_at, coalesce(last_message_at, 0), updated_at)
FROM sessions INDEXED BY sessions_active
WHERE owner = :owner AND deleted_at IS NULL AND (active_at, key) < (:at, :key) AND NOT EXISTS (
    SELECT 1 FROM sessions AS p WHERE p.key = sessions.parent AND sessions.relation = 'delegate' AND p.deleted_at IS NULL
)
ORDER BY active_at DESC, key DESC LIMIT :limit

-- name: sessions_delegated
SELECT key FROM sessions WHERE parent = :session AND relation = 'delegate' AND deleted_at IS NULL ORDER BY key

-- name: sessions_trashed
SELECT key, id, title, max(active_at, coalesce(last_message_at, 0)), active_at, pinned_at, open_turns,
    max(active_at, coalesce(last_message_at, 0), updated_at)
FROM sessions INDEXED BY sessions_trash
WHERE owner = :owner AND deleted_at IS NOT NULL AND deleted_at <= :until AND key > :after
ORDER BY key LIMIT :limit

-- name: sessions_long
SELECT key FROM sessions
WHERE key > :after AND +owner = :owner AND deleted_at IS NULL AND pinned_at IS NULL AND message_count > :most
ORDER BY key LIMIT :limit

-- name: sessions_unpinned
SELECT key FROM sessions
WHERE key > :after AND +owner = :owner AND deleted_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM sessions AS o WHERE o.tree = sessions.tree AND o.pinned_at IS NOT NULL AND o.deleted_at IS NULL
)
ORDER BY key LIMIT :limit

-- name: messages_weight
SELECT count(*), coalesce(sum(
    octet_length(m.parts) + coalesce(octet_length(m.native), 0) + coalesce(octet_length(m.metadata), 0)
    + coalesce(octet_length(m.error), 0)
), 0), coalesce(sum({step}), 0)
{own}
WHERE b.session = :session

-- name: blobs_weight
SELECT coalesce(sum(x.size), 0)
{own}
CROSS JOIN json_each(m.blobs) AS j CROSS JOIN blobs AS x ON x.owner = :owner AND x.hash = j.value
WHERE b.session = :session AND m.blobs IS NOT NULL

-- name: messages_outline
SELECT key & 4294967295, role, turn FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND deleted_at IS NULL AND role <> 'system'
ORDER BY key LIMIT :limit

-- name: messages_mark
UPDATE messages SET deleted_at = :now
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high AND deleted_at IS NULL AND role <> 'system'
RETURNING tokens, coalesce(input_tokens, 0), coalesce(output_tokens, 0)

-- name: messages_large
SELECT b.key, b.number, m.key & 4294967295
{own}
WHERE b.session = :session AND (b.key, m.key & 4294967295) > (:branch, :position)
    AND (octet_length(m.parts) > :over OR m.blobs IS NOT NULL) AND instr(m.parts, '"kind":"tool_result"')
ORDER BY b.key, m.key LIMIT :limit

-- name: message_thin
UPDATE messages SET parts = :parts, tokens = :tokens, blobs = :blobs WHERE key = (:branch << 32) | :position
