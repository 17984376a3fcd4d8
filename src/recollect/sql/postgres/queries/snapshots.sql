-- shared: of_session
-- Condition: the row belongs to the session with the key :session.
n.tree = :session::bigint >> 20 AND n.session = (:session::bigint & 1048575)::int

-- shared: snapshot_columns
-- The columns of a snapshot; the branch is NULL if it was deleted.
n.number AS key, n.kind, n.content,
(SELECT b.number FROM recollect.branches AS b WHERE b.tree = n.tree AND b.number = n.branch) AS branch_number,
n.position, n.tokens, n.created_at, n.updated_at

-- name: snapshot_find
-- Return the key of the snapshot of a kind and message.
SELECT n.number AS key FROM recollect.snapshots AS n
WHERE {of_session} AND n.kind = :kind AND n.branch = (:branch::bigint & 1048575)::int AND n.position = :position

-- name: snapshot_insert
-- Insert a snapshot.
INSERT INTO recollect.snapshots (tree, session, kind, content, branch, position, tokens, created_at, updated_at)
VALUES (:session::bigint >> 20, (:session::bigint & 1048575)::int, :kind, :content, (:branch::bigint & 1048575)::int,
    :position, :tokens, :now::bigint, :now::bigint)
RETURNING number AS key

-- name: snapshot_write
-- Replace the content of a snapshot.
UPDATE recollect.snapshots AS n SET content = :content, tokens = :tokens, updated_at = :now
WHERE {of_session} AND n.number = :key

-- name: snapshot_get
-- Return a snapshot.
SELECT {snapshot_columns} FROM recollect.snapshots AS n WHERE {of_session} AND n.number = :key

-- name: snapshots_of_session
-- Return the snapshots of a session, of one kind or all.
SELECT {snapshot_columns} FROM recollect.snapshots AS n WHERE {of_session} AND (:kind::text IS NULL OR n.kind = :kind::text)
