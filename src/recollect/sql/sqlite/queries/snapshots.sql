-- shared: snapshot_columns
-- The columns of a snapshot, with the public number of the branch.
n.key, n.kind, n.content, b.number AS branch_number, n.message & 4294967295 AS position, n.tokens, n.created_at, n.updated_at

-- name: snapshot_find
-- Return the key of the snapshot of a kind and message.
SELECT key FROM snapshots INDEXED BY snapshots_kind
WHERE session = :session AND kind = :kind AND message = (:branch << 32) | :position

-- name: snapshot_insert
-- Insert a snapshot.
INSERT INTO snapshots (session, kind, content, message, tokens, created_at, updated_at)
VALUES (:session, :kind, :content, (:branch << 32) | :position, :tokens, :now, :now)
RETURNING key

-- name: snapshot_write
-- Replace the content of a snapshot.
UPDATE snapshots SET content = :content, tokens = :tokens, updated_at = :now
WHERE key = :key AND session = :session

-- name: snapshot_get
-- Return a snapshot.
SELECT {snapshot_columns}
FROM snapshots AS n LEFT JOIN branches AS b ON b.key = n.message >> 32
WHERE n.key = :key AND n.session = :session

-- name: snapshots_of_session
-- Return the snapshots of a session, of one kind or all.
SELECT {snapshot_columns}
FROM snapshots AS n LEFT JOIN branches AS b ON b.key = n.message >> 32
WHERE n.session = :session AND (:kind IS NULL OR n.kind = :kind)
