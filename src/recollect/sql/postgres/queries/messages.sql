-- message_for_update locks the message: a change that adjusts counts by the old state of a message must not race with another
-- one, such as one in a fork, which shares the message and locks another session.

-- shared: message_columns
-- The columns of a message. The rare ones are one JSON array, or NULL; varchar marks JSON that stays bytes.
parts::varchar, position, role, created_at, turn, tokens, format, model, input_tokens, output_tokens, native,
CASE WHEN coalesce(state, error, metadata, blobs, client_key) IS NOT NULL
    OR coalesce(completed_at, deleted_at, edited_at) IS NOT NULL
THEN json_build_array(state, completed_at, deleted_at, error, metadata, blobs, client_key, edited_at) END AS rare

-- shared: path_cte
-- The branch segments of the path that ends with a branch.
path (tree, number, parent, low, high) AS (
    SELECT b.tree, b.number, b.parent, b.fork_at, CASE WHEN s.branch = b.number THEN s.last ELSE b.last END
    FROM recollect.branches AS b LEFT JOIN recollect.sessions AS s ON s.tree = b.tree AND s.number = b.session
    WHERE b.tree = :branch::bigint >> 20 AND b.number = (:branch::bigint & 1048575)::int
    UNION ALL
    SELECT b.tree, b.number, b.parent, b.fork_at, p.low
    FROM path AS p JOIN recollect.branches AS b ON b.tree = p.tree AND b.number = p.parent
)

-- shared: on_branch
-- Condition: the row belongs to the branch with the key :branch.
tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int

-- shared: is_tool_step
-- Condition: a message is a tool step: a tool result, or an assistant message with a call that it does not answer
-- itself. Transcripts for people omit tool steps.
(m.role = 'tool' OR (m.role = 'assistant' AND EXISTS (
    SELECT 1 FROM recollect.tool_calls AS c
    WHERE c.tree = m.tree AND c.message_branch = m.branch AND c.message_position = m.position
        AND (c.result IS NULL OR c.branch <> m.branch OR c.result <> m.position)
    OFFSET 0
)))

-- name: message_insert
-- Insert a message.
INSERT INTO recollect.messages (
    tree, branch, position, turn, role, state, tokens, input_tokens, output_tokens, created_at, completed_at, format,
    model, error, metadata, native, blobs, parts
) VALUES (?1::bigint >> 20, (?1::bigint & 1048575)::int, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
    ?16, ?17)

-- name: message_insert_full
-- Insert a message with all its columns.
INSERT INTO recollect.messages (
    tree, branch, position, turn, role, state, tokens, input_tokens, output_tokens, created_at, completed_at, format,
    model, error, metadata, native, blobs, parts, client_key, edited_at, deleted_at
) VALUES (?1::bigint >> 20, (?1::bigint & 1048575)::int, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
    ?16, ?17, ?18, ?19, ?20)

-- name: message_get
-- Return a message by its branch and position.
SELECT {message_columns} FROM recollect.messages WHERE {on_branch} AND position = :position::bigint

-- name: message_for_update_lock
-- Lock the rows that message_for_update reads.
SELECT position FROM recollect.messages WHERE {on_branch} AND position = :position::bigint FOR NO KEY UPDATE

-- name: message_for_update
-- Return a message and lock it until the transaction ends.
SELECT {message_columns} FROM recollect.messages WHERE {on_branch} AND position = :position::bigint

-- name: messages_forward
-- Return messages of a span, oldest first.
SELECT {message_columns} FROM recollect.messages
WHERE {on_branch} AND position > :low::bigint AND position <= :high::bigint AND (deleted_at IS NULL OR :deleted::boolean)
ORDER BY position LIMIT :limit

-- name: messages_backward
-- Return messages of a span, newest first.
SELECT {message_columns} FROM recollect.messages
WHERE {on_branch} AND position > :low::bigint AND position <= :high::bigint AND (deleted_at IS NULL OR :deleted::boolean)
ORDER BY position DESC LIMIT :limit

-- name: messages_forward_by_time
-- Return the messages of a span that were created between two times, oldest first.
SELECT {message_columns} FROM recollect.messages
WHERE {on_branch} AND position > :low::bigint AND position <= :high::bigint AND (deleted_at IS NULL OR :deleted::boolean)
    AND created_at > :since::bigint AND created_at < :until::bigint
ORDER BY position LIMIT :limit

-- name: messages_backward_by_time
-- Return the messages of a span that were created between two times, newest first.
SELECT {message_columns} FROM recollect.messages
WHERE {on_branch} AND position > :low::bigint AND position <= :high::bigint AND (deleted_at IS NULL OR :deleted::boolean)
    AND created_at > :since::bigint AND created_at < :until::bigint
ORDER BY position DESC LIMIT :limit

-- name: messages_last
-- Return the last messages of a session's head branch, newest first.
SELECT m.*, (head_branch.tree << 20) | head_branch.number AS head, head_branch.number, head_branch.last, head_branch.fork_at
FROM (
    SELECT b.tree, b.number, b.fork_at, s.last FROM recollect.sessions AS s
    JOIN recollect.branches AS b ON b.tree = s.tree AND b.number = s.branch
    WHERE s.owner = :owner AND s.id = :id AND s.deleted_at IS NULL
) AS head_branch
CROSS JOIN LATERAL (
    SELECT {message_columns} FROM recollect.messages
    WHERE tree = head_branch.tree AND branch = head_branch.number AND position > head_branch.fork_at AND position <= head_branch.last
        AND (deleted_at IS NULL OR :deleted::boolean)
    ORDER BY position DESC LIMIT :limit
) AS m

-- name: messages_last_tuples
-- Return the columns that a history needs of the last messages of a session's head branch, newest first.
SELECT m.*, (head_branch.tree << 20) | head_branch.number AS head, head_branch.fork_at
FROM (
    SELECT b.tree, b.number, b.fork_at, s.last FROM recollect.sessions AS s
    JOIN recollect.branches AS b ON b.tree = s.tree AND b.number = s.branch
    WHERE s.owner = :owner AND s.id = :id AND s.deleted_at IS NULL
) AS head_branch
CROSS JOIN LATERAL (
    SELECT parts::varchar, position, role, format, native, coalesce(state, blobs) AS rare FROM recollect.messages
    WHERE tree = head_branch.tree AND branch = head_branch.number AND position > head_branch.fork_at AND position <= head_branch.last
        AND deleted_at IS NULL
    ORDER BY position DESC LIMIT :limit
) AS m

-- name: messages_tuples
-- Return the columns of messages that a history needs, oldest first.
SELECT parts::varchar, position, role, format, native, coalesce(state, blobs) AS rare
FROM recollect.messages
WHERE {on_branch} AND position > :low::bigint AND position <= :high::bigint AND deleted_at IS NULL
ORDER BY position LIMIT :limit

-- name: messages_pinned
-- Return the pinned and system messages of a span.
SELECT {message_columns} FROM recollect.messages
WHERE {on_branch} AND position IN (
    SELECT p.position FROM recollect.pins AS p
    WHERE p.tree = :branch::bigint >> 20 AND p.branch = (:branch::bigint & 1048575)::int
        AND p.position > :low::bigint AND p.position <= :high::bigint
) AND deleted_at IS NULL
ORDER BY position

-- name: messages_last_user
-- Return the last user message of a span.
SELECT {message_columns} FROM recollect.messages
WHERE {on_branch} AND position > :low::bigint AND position <= :high::bigint AND role = 'user' AND deleted_at IS NULL
ORDER BY position DESC LIMIT 1

-- name: messages_keyed
-- Return the messages of a path that have one of these keys, a JSON array of their UTF-8 bytes in hexadecimal with spaces.
-- The two inner replacements write NUL and U+0010 as the column holds them (engine/postgres/adapters.py).
WITH RECURSIVE {path_cte}
SELECT m.* FROM (
    SELECT convert_from(decode(replace(replace(j.value, '10', '1070'), '00', '1030'), 'hex'), 'UTF8') AS client_key
    FROM json_array_elements_text(:keys::json) AS j (value) OFFSET 0
) AS k
CROSS JOIN path AS p
CROSS JOIN LATERAL (
    SELECT (m.tree << 20) | m.branch AS branch, m.branch AS number, m.position, m.client_key, m.turn, m.edited_at,
        m.deleted_at, m.role, m.format, m.native, m.parts
    FROM recollect.messages AS m
    WHERE m.owner = (SELECT recollect.owner()) AND m.client_key = k.client_key AND m.tree = p.tree AND m.branch = p.number
        AND m.position > p.low AND m.position <= p.high AND (m.deleted_at IS NULL OR :deleted::boolean) OFFSET 0
) AS m

-- name: messages_with_key
-- Return the messages of a tree with a key.
SELECT (tree << 20) | branch AS branch, position, deleted_at IS NOT NULL AS is_deleted FROM recollect.messages
WHERE owner = (SELECT recollect.owner()) AND client_key = :key AND tree = :tree

-- name: messages_with_keys
-- Return the messages of a tree that have one of these keys, a JSON array as in messages_keyed.
SELECT m.client_key, m.branch, m.position FROM (
    SELECT convert_from(decode(replace(replace(j.value, '10', '1070'), '00', '1030'), 'hex'), 'UTF8') AS client_key
    FROM json_array_elements_text(:keys::json) AS j (value) OFFSET 0
) AS k
CROSS JOIN LATERAL (
    SELECT m.client_key, (m.tree << 20) | m.branch AS branch, m.position FROM recollect.messages AS m
    WHERE m.owner = (SELECT recollect.owner()) AND m.client_key = k.client_key AND m.tree = :tree OFFSET 0
) AS m

-- name: messages_of_key
-- Return a page of an owner's messages with a key, without the trees whose sessions are all in the trash.
SELECT m.tree, (m.tree << 20) | m.branch AS branch, m.branch AS number, m.position, m.deleted_at IS NOT NULL AS is_deleted
FROM recollect.messages AS m
WHERE m.owner = :owner AND m.client_key = :key
    AND (m.tree, m.branch, m.position) > (:branch::bigint >> 20, (:branch::bigint & 1048575)::int, :position::bigint)
    AND EXISTS (SELECT FROM recollect.sessions AS s WHERE s.tree = m.tree AND s.deleted_at IS NULL)
ORDER BY m.tree, m.branch, m.position LIMIT :limit

-- name: messages_sharing_key
-- Return the messages of a branch whose key another message of the path has too. Deleted messages do not count.
WITH RECURSIVE {path_cte}
SELECT m.position, m.client_key FROM recollect.messages AS m
WHERE m.tree = :branch::bigint >> 20 AND m.branch = (:branch::bigint & 1048575)::int
    AND m.client_key IS NOT NULL AND m.deleted_at IS NULL
    AND EXISTS (
        SELECT FROM path AS p CROSS JOIN LATERAL (
            SELECT FROM recollect.messages AS o
            WHERE o.owner = m.owner AND o.client_key = m.client_key AND o.tree = p.tree AND o.branch = p.number
                AND o.position > p.low AND o.position <= p.high AND o.deleted_at IS NULL
                AND (o.branch <> m.branch OR o.position <> m.position) OFFSET 0
        ) AS o
    )

-- name: messages_selected
-- Return the tokens of messages of a branch, at the positions of a JSON array, and whether they are deleted.
SELECT position, deleted_at IS NOT NULL AS is_deleted, tokens, input_tokens, output_tokens FROM recollect.messages
WHERE {on_branch} AND position IN (SELECT j.value::bigint FROM json_array_elements_text(:positions::json) AS j (value))

-- name: message_set_key
-- Set the key of a message.
UPDATE recollect.messages SET client_key = :key WHERE {on_branch} AND position = :position

-- name: message_set_metadata
-- Replace the metadata of a message.
UPDATE recollect.messages SET metadata = :metadata WHERE {on_branch} AND position = :position

-- name: message_set_usage
-- Replace the usage of a message.
UPDATE recollect.messages SET input_tokens = :input_tokens, output_tokens = :output_tokens WHERE {on_branch} AND position = :position

-- name: messages_count
-- Count the messages and tokens of a span.
SELECT count(*) AS messages, coalesce(sum(tokens), 0)::bigint AS tokens, coalesce(sum(input_tokens), 0)::bigint AS input_tokens,
    coalesce(sum(output_tokens), 0)::bigint AS output_tokens, max(created_at) AS last_message_at
FROM recollect.messages
WHERE {on_branch} AND position > :low::bigint AND position <= :high::bigint AND deleted_at IS NULL

-- name: messages_shown
-- Count the messages of path ranges that are not tool steps.
WITH RECURSIVE requested_ranges (range_number, id, deleted_at, after, until) AS (
    SELECT j.range_number - 1, j.value ->> 0, (j.value ->> 1)::bigint, (j.value ->> 2)::bigint, (j.value ->> 3)::bigint
    FROM json_array_elements(:ranges::json) WITH ORDINALITY AS j (value, range_number)
), heads (range_number, after, until, tree, branch, last) AS (
    SELECT a.range_number, a.after, a.until, s.tree, s.branch, s.last
    FROM requested_ranges AS a CROSS JOIN LATERAL (
        SELECT s.tree, s.branch, s.last FROM recollect.sessions AS s
        WHERE s.owner = :owner AND s.id = a.id AND s.deleted_at IS NULL OFFSET 0
    ) AS s
    WHERE a.deleted_at IS NULL
    UNION ALL
    SELECT a.range_number, a.after, a.until, s.tree, s.branch, s.last
    FROM requested_ranges AS a CROSS JOIN LATERAL (
        SELECT s.tree, s.branch, s.last FROM recollect.sessions AS s
        WHERE s.owner = :owner AND s.id = a.id AND s.deleted_at IS NOT NULL AND s.deleted_at = a.deleted_at OFFSET 0
    ) AS s
    WHERE a.deleted_at IS NOT NULL
), path (range_number, after, until, tree, number, parent, low, high) AS (
    SELECT h.range_number, h.after, h.until, b.tree, b.number, b.parent, b.fork_at, h.last
    FROM heads AS h JOIN recollect.branches AS b ON b.tree = h.tree AND b.number = h.branch
    UNION ALL
    SELECT p.range_number, p.after, p.until, b.tree, b.number, b.parent, b.fork_at, p.low
    FROM path AS p JOIN recollect.branches AS b ON b.tree = p.tree AND b.number = p.parent
)
SELECT p.range_number, (
    SELECT count(*) FROM recollect.messages AS m
    WHERE m.tree = p.tree AND m.branch = p.number
        AND m.position > greatest(p.low, p.after) AND m.position <= least(p.high, p.until)
        AND m.deleted_at IS NULL AND NOT {is_tool_step}
) AS messages
FROM path AS p

-- name: messages_shown_by_branch
-- Count the messages of each branch of a session that are not tool steps.
SELECT b.number, (
    SELECT count(*) FROM recollect.messages AS m
    WHERE m.tree = b.tree AND m.branch = b.number AND m.deleted_at IS NULL AND NOT {is_tool_step}
) AS messages
FROM recollect.branches AS b
WHERE b.tree = :session::bigint >> 20 AND b.session = (:session::bigint & 1048575)::int

-- name: messages_blobs
-- Return the blob lists of the messages of a span and of their earlier versions.
SELECT blobs FROM recollect.messages
WHERE {on_branch} AND position > :low::bigint AND position <= :high::bigint AND blobs IS NOT NULL
UNION ALL
SELECT blobs FROM recollect.message_versions
WHERE {on_branch} AND position > :low::bigint AND position <= :high::bigint AND blobs IS NOT NULL

-- name: message_mark_deleted
-- Mark a message as deleted, or remove the mark.
UPDATE recollect.messages SET deleted_at = :deleted_at WHERE {on_branch} AND position = :position

-- name: message_write
-- Replace the content of a message that is not finished.
UPDATE recollect.messages
SET parts = :parts, state = :state, tokens = :tokens, input_tokens = :input_tokens, output_tokens = :output_tokens,
    completed_at = :completed_at, format = :format, model = :model, error = :error, metadata = :metadata,
    native = :native, blobs = :blobs
WHERE {on_branch} AND position = :position

-- name: message_replace
-- Replace the content of a finished message.
UPDATE recollect.messages
SET role = :role, parts = :parts, state = :state, tokens = :tokens, input_tokens = :input_tokens,
    output_tokens = :output_tokens, completed_at = coalesce(completed_at, :completed_at), format = :format, model = :model,
    error = :error, metadata = :metadata, native = :native, blobs = :blobs, edited_at = :edited_at
WHERE {on_branch} AND position = :position

-- name: messages_interrupt
-- Mark unfinished messages of a turn as interrupted.
UPDATE recollect.messages SET state = 'interrupted', completed_at = :now
WHERE {on_branch} AND position >= :position AND turn = :position AND state IN ('pending', 'streaming')

-- name: messages_erase
-- Delete the messages of a branch after a position.
DELETE FROM recollect.messages WHERE {on_branch} AND position > :low

-- name: append_get
-- Return the digest and the messages of an append by its idempotency key.
SELECT digest, (tree << 20) | branch AS branch, position, count AS messages FROM recollect.appends
WHERE tree = :session::bigint >> 20 AND session = (:session::bigint & 1048575)::int AND key = :key

-- name: append_insert
-- Store the idempotency key of an append.
INSERT INTO recollect.appends (tree, session, key, digest, branch, position, count, created_at)
VALUES (:session::bigint >> 20, (:session::bigint & 1048575)::int, :key, :digest, (:branch::bigint & 1048575)::int,
    :position, :count, :now)

-- name: blob_reference
-- Add a reference to a blob; no row if the blob does not exist.
UPDATE recollect.blobs SET refs = refs + 1 WHERE owner = :owner AND hash = :hash RETURNING refs

-- name: blob_insert
-- Insert a blob with one reference.
INSERT INTO recollect.blobs (owner, hash, size, refs, data, created_at) VALUES (:owner, :hash, :size, 1, :data, :now)

-- name: blob_get
-- Return the payload of a blob.
SELECT data FROM recollect.blobs WHERE owner = :owner AND hash = :hash

-- name: blob_release
-- Remove a reference to a blob.
UPDATE recollect.blobs SET refs = refs - 1 WHERE owner = ?1 AND hash = ?2

-- name: blob_delete_unused
-- Delete a blob that no message refers to.
DELETE FROM recollect.blobs WHERE owner = ?1 AND hash = ?2 AND refs <= 0
