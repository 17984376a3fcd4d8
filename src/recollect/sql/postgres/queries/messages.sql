-- message_for_update locks the message: a change that adjusts counts by what the message was must not be overtaken by
-- another one, such as that of a fork, which shares the message and holds the lock of another session.

-- shared: message
parts::varchar, position, role, created_at, turn, tokens, format, model, input_tokens, output_tokens, native,
CASE WHEN coalesce(state, error, metadata, blobs) IS NOT NULL OR coalesce(completed_at, deleted_at) IS NOT NULL
THEN json_build_array(state, completed_at, deleted_at, error, metadata, blobs) END

-- shared: branch
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int

-- shared: step
(m.role = 'tool' OR (m.role = 'assistant' AND EXISTS (
    SELECT 1 FROM recollect.tool_calls AS c
    WHERE c.tree = m.tree AND c.message_branch = m.branch AND c.message_position = m.position
        AND (c.result IS NULL OR c.branch <> m.branch OR c.result <> m.position)
    OFFSET 0
)))

-- name: message_insert
INSERT INTO recollect.messages (
    tree, branch, position, turn, role, state, tokens, input_tokens, output_tokens, created_at, completed_at, format,
    model, error, metadata, native, blobs, parts
) VALUES (?1::bigint >> 20, (?1::bigint & 1048575)::int, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
    ?16, ?17)

-- name: message_get
SELECT {message} FROM recollect.messages WHERE {branch} AND position = :position::bigint

-- lock: message_for_update
SELECT position FROM recollect.messages WHERE {branch} AND position = :position::bigint FOR NO KEY UPDATE

-- name: message_for_update
SELECT {message} FROM recollect.messages WHERE {branch} AND position = :position::bigint

-- name: messages_forward
SELECT {message} FROM recollect.messages
WHERE {branch} AND position > :low::bigint AND position <= :high::bigint AND (deleted_at IS NULL OR :deleted::boolean)
ORDER BY position LIMIT :limit

-- name: messages_backward
SELECT {message} FROM recollect.messages
WHERE {branch} AND position > :low::bigint AND position <= :high::bigint AND (deleted_at IS NULL OR :deleted::boolean)
ORDER BY position DESC LIMIT :limit

-- before: messages_last
SELECT set_config('enable_sort', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)

-- name: messages_last
SELECT m.*, (here.tree << 20) | here.number, here.number, here.last, here.fork_at
FROM (
    SELECT b.tree, b.number, b.fork_at, s.last FROM recollect.sessions AS s
    JOIN recollect.branches AS b ON b.tree = s.tree AND b.number = s.branch
    WHERE s.owner = :owner AND s.id = :id AND s.deleted_at IS NULL
) AS here
CROSS JOIN LATERAL (
    SELECT {message} FROM recollect.messages
    WHERE tree = here.tree AND branch = here.number AND position > here.fork_at AND position <= here.last
        AND (deleted_at IS NULL OR :deleted::boolean)
    ORDER BY position DESC LIMIT :limit
) AS m

-- ends: messages_last

-- name: messages_tell
SELECT parts::varchar, position, role, format, native, coalesce(state, blobs)
FROM recollect.messages
WHERE {branch} AND position > :low::bigint AND position <= :high::bigint AND deleted_at IS NULL
ORDER BY position LIMIT :limit

-- name: messages_pinned
SELECT {message} FROM recollect.messages
WHERE {branch} AND position IN (
    SELECT p.position FROM recollect.pins AS p
    WHERE p.tree = :branch::bigint >> 20 AND p.branch = (:branch::bigint & 1048575)::int
        AND p.position > :low::bigint AND p.position <= :high::bigint
) AND deleted_at IS NULL
ORDER BY position

-- name: messages_asked
SELECT {message} FROM recollect.messages
WHERE {branch} AND position > :low::bigint AND position <= :high::bigint AND role = 'user' AND deleted_at IS NULL
ORDER BY position DESC LIMIT 1

-- name: message_annotate
UPDATE recollect.messages SET metadata = :metadata WHERE {branch} AND position = :position

-- name: messages_count
SELECT count(*), coalesce(sum(tokens), 0)::bigint, coalesce(sum(input_tokens), 0)::bigint,
    coalesce(sum(output_tokens), 0)::bigint, max(created_at)
FROM recollect.messages
WHERE {branch} AND position > :low::bigint AND position <= :high::bigint AND deleted_at IS NULL

-- name: messages_shown
WITH RECURSIVE asked (place, id, deleted_at, after, until) AS (
    SELECT j.place - 1, j.value ->> 0, (j.value ->> 1)::bigint, (j.value ->> 2)::bigint, (j.value ->> 3)::bigint
    FROM json_array_elements(:stretches::json) WITH ORDINALITY AS j (value, place)
), heads (place, after, until, tree, branch, last) AS (
    SELECT a.place, a.after, a.until, s.tree, s.branch, s.last
    FROM asked AS a CROSS JOIN LATERAL (
        SELECT s.tree, s.branch, s.last FROM recollect.sessions AS s
        WHERE s.owner = :owner AND s.id = a.id AND s.deleted_at IS NULL OFFSET 0
    ) AS s
    WHERE a.deleted_at IS NULL
    UNION ALL
    SELECT a.place, a.after, a.until, s.tree, s.branch, s.last
    FROM asked AS a CROSS JOIN LATERAL (
        SELECT s.tree, s.branch, s.last FROM recollect.sessions AS s
        WHERE s.owner = :owner AND s.id = a.id AND s.deleted_at IS NOT NULL AND s.deleted_at = a.deleted_at OFFSET 0
    ) AS s
    WHERE a.deleted_at IS NOT NULL
), path (place, after, until, tree, number, parent, low, high) AS (
    SELECT h.place, h.after, h.until, b.tree, b.number, b.parent, b.fork_at, h.last
    FROM heads AS h JOIN recollect.branches AS b ON b.tree = h.tree AND b.number = h.branch
    UNION ALL
    SELECT p.place, p.after, p.until, b.tree, b.number, b.parent, b.fork_at, p.low
    FROM path AS p JOIN recollect.branches AS b ON b.tree = p.tree AND b.number = p.parent
)
SELECT p.place, (
    SELECT count(*) FROM recollect.messages AS m
    WHERE m.tree = p.tree AND m.branch = p.number
        AND m.position > greatest(p.low, p.after) AND m.position <= least(p.high, p.until)
        AND m.deleted_at IS NULL AND NOT {step}
)
FROM path AS p

-- name: messages_shown_by_branch
SELECT b.number, (
    SELECT count(*) FROM recollect.messages AS m
    WHERE m.tree = b.tree AND m.branch = b.number AND m.deleted_at IS NULL AND NOT {step}
)
FROM recollect.branches AS b
WHERE b.tree = :session::bigint >> 20 AND b.session = (:session::bigint & 1048575)::int

-- name: messages_blobs
SELECT blobs FROM recollect.messages
WHERE {branch} AND position > :low::bigint AND position <= :high::bigint AND blobs IS NOT NULL

-- name: message_mark
UPDATE recollect.messages SET deleted_at = :deleted_at WHERE {branch} AND position = :position

-- name: message_write
UPDATE recollect.messages
SET parts = :parts, state = :state, tokens = :tokens, input_tokens = :input_tokens, output_tokens = :output_tokens,
    completed_at = :completed_at, format = :format, model = :model, error = :error, metadata = :metadata,
    native = :native, blobs = :blobs
WHERE {branch} AND position = :position

-- name: messages_interrupt
UPDATE recollect.messages SET state = 'interrupted', completed_at = :now
WHERE {branch} AND position >= :position AND turn = :position AND state IN ('pending', 'streaming')

-- name: messages_erase
DELETE FROM recollect.messages WHERE {branch} AND position > :low

-- name: append_get
SELECT digest, (tree << 20) | branch, position, count FROM recollect.appends
WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int AND key = :key

-- name: append_insert
INSERT INTO recollect.appends (tree, session, key, digest, branch, position, count, created_at)
VALUES (:session::bigint >> 20, (:session::bigint & 1048575)::int, :key, :digest, (:branch::bigint & 1048575)::int,
    :position, :count, :now)

-- name: blob_keep
UPDATE recollect.blobs SET refs = refs + 1 WHERE owner = :owner AND hash = :hash RETURNING refs

-- name: blob_insert
INSERT INTO recollect.blobs (owner, hash, size, refs, data, created_at) VALUES (:owner, :hash, :size, 1, :data, :now)

-- name: blob_get
SELECT data FROM recollect.blobs WHERE owner = :owner AND hash = :hash

-- name: blob_drop
UPDATE recollect.blobs SET refs = refs - 1 WHERE owner = ?1 AND hash = ?2

-- name: blob_sweep
DELETE FROM recollect.blobs WHERE owner = ?1 AND hash = ?2 AND refs <= 0
