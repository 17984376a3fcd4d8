-- shared: of
n.tree = :session::bigint >> 20 AND n.session = (:session::bigint & 1048575)::int

-- shared: snapshot
n.number, n.kind, n.content,
(SELECT b.number FROM recollect.branches AS b WHERE b.tree = n.tree AND b.number = n.branch),
n.position, n.tokens, n.created_at, n.updated_at

-- name: snapshot_find
SELECT n.number FROM recollect.snapshots AS n
WHERE {of} AND n.kind = :kind AND n.branch = (:branch::bigint & 1048575)::int AND n.position = :position

-- name: snapshot_insert
INSERT INTO recollect.snapshots (tree, session, kind, content, branch, position, tokens, created_at, updated_at)
VALUES (:session::bigint >> 20, (:session::bigint & 1048575)::int, :kind, :content, (:branch::bigint & 1048575)::int,
    :position, :tokens, :now::bigint, :now::bigint)
RETURNING number

-- name: snapshot_write
UPDATE recollect.snapshots AS n SET content = :content, tokens = :tokens, updated_at = :now
WHERE {of} AND n.number = :key

-- name: snapshot_get
SELECT {snapshot} FROM recollect.snapshots AS n WHERE {of} AND n.number = :key

-- name: snapshots_of_session
SELECT {snapshot} FROM recollect.snapshots AS n WHERE {of} AND (:kind::text IS NULL OR n.kind = :kind::text)
