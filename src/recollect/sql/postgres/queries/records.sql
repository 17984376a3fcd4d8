-- Session 0 is the store.

-- shared: is_record
-- Condition: this record.
{of_kind} AND key = :key::bytea

-- shared: of_kind
-- Condition: a record of this kind, of the session or of the store.
owner = :owner AND session = :session::bigint AND kind = :kind::text

-- shared: record_state
-- The columns that a write returns.
revision, created_at, updated_at

-- shared: newest_deleted
-- The highest revision that a deleted record of the kind :mark had, or 0.
coalesce((
    SELECT m.revision FROM recollect.records AS m
    WHERE m.owner = :owner AND m.session = :session::bigint AND m.kind = 'recollect.deleted'
        AND m.key = :mark::bytea
), 0)

-- name: record_get
-- Return a record.
SELECT {record_state}, value, data FROM recollect.records WHERE {is_record}

-- name: record_revision
-- Return the revision of a record.
SELECT revision FROM recollect.records WHERE {is_record}

-- name: record_put
-- Create or replace a record; no row if it exists and another revision is expected.
INSERT INTO recollect.records AS r (owner, session, kind, key, created_at, updated_at, value, data)
VALUES (:owner, :session, :kind, :key, :now, :now, :value, :data)
ON CONFLICT (owner, session, kind, key) DO UPDATE
SET revision = r.revision + 1, updated_at = greatest(r.updated_at, excluded.updated_at), value = excluded.value,
    data = excluded.data
WHERE :expected::bigint IS NULL
RETURNING {record_state}

-- name: record_replace
-- Replace a record that has the expected revision.
UPDATE recollect.records
SET revision = revision + 1, updated_at = greatest(updated_at, :now::bigint), value = :value, data = :data
WHERE {is_record} AND revision = :expected
RETURNING {record_state}

-- name: record_raise
-- Give a new record a revision that no deleted record of its kind had; no row if it has one.
UPDATE recollect.records SET revision = 1 + {newest_deleted} WHERE {is_record} AND revision <= {newest_deleted}
RETURNING {record_state}

-- name: record_touch
-- Set the time of a record to now; no row if it does not exist.
UPDATE recollect.records SET updated_at = :now WHERE {is_record}
RETURNING revision

-- name: record_delete
-- Delete a record, if it has the expected revision or none is expected.
DELETE FROM recollect.records WHERE {is_record} AND (:expected::bigint IS NULL OR revision = :expected::bigint)
RETURNING revision

-- name: record_mark_deleted
-- Store the highest revision that a deleted record of a kind had, in a record whose key is the kind.
INSERT INTO recollect.records AS r (owner, session, kind, key, revision, created_at, updated_at, value)
SELECT :owner, :session::bigint, 'recollect.deleted', :mark::bytea, :revision::bigint, :now::bigint, :now::bigint,
    'null'
WHERE {newest_deleted} < :revision::bigint
ON CONFLICT (owner, session, kind, key) DO UPDATE
SET revision = greatest(r.revision, excluded.revision), updated_at = excluded.updated_at

-- name: records_page
-- Return records of a kind in a range of keys, in their order.
SELECT key, {record_state}, value, data FROM recollect.records
WHERE {of_kind} AND key >= :low AND key < :high
ORDER BY key LIMIT (SELECT :limit::bigint)

-- name: records_of_sessions
-- Return the records of a kind of the sessions with these ids, a JSON array as in messages_keyed; also sessions without one.
SELECT s.id, r.key, r.value FROM (
    SELECT convert_from(decode(replace(replace(j.value, '10', '1070'), '00', '1030'), 'hex'), 'UTF8') AS id
    FROM json_array_elements_text(:ids::json) AS j (value) OFFSET 0
) AS i
CROSS JOIN LATERAL (
    SELECT s.id, (s.tree << 20) | s.number AS key FROM recollect.sessions AS s
    WHERE s.owner = :owner AND s.id = i.id AND s.deleted_at IS NULL OFFSET 0
) AS s
LEFT JOIN recollect.records AS r ON r.owner = :owner AND r.session = s.key AND r.kind = :kind::text

-- name: records_delete
-- Delete records of a kind in a range of keys.
DELETE FROM recollect.records WHERE {of_kind} AND key >= :low::bytea AND key < :high::bytea
RETURNING revision

-- name: records_erase
-- Delete the records of a session.
DELETE FROM recollect.records WHERE owner = :owner AND session = :session

-- name: records_sizes
-- Return the names and the sizes in bytes of a page of records of all kinds, for an export.
SELECT kind, key, coalesce(octet_length(value), 0) + coalesce(octet_length(data), 0) AS size FROM recollect.records
WHERE owner = :owner AND session = :session AND (kind, key) > (:kind, :key)
ORDER BY kind, key LIMIT (SELECT :limit::bigint)

-- name: records_rows
-- Return records of all kinds between two names.
SELECT kind, key, {record_state}, value, data FROM recollect.records
WHERE owner = :owner AND session = :session AND (kind, key) > (:kind, :key) AND (kind, key) <= (:last_kind, :last_key)
ORDER BY kind, key

-- name: record_copy
-- Insert a record with all its columns, or replace it, for a copy.
INSERT INTO recollect.records (owner, session, kind, key, revision, created_at, updated_at, value, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (owner, session, kind, key) DO UPDATE
SET revision = excluded.revision, created_at = excluded.created_at, updated_at = excluded.updated_at, value = excluded.value,
    data = excluded.data

-- name: record_import
-- Insert a record with its times, or replace one with a lower revision.
INSERT INTO recollect.records AS r (owner, session, kind, key, revision, created_at, updated_at, value, data)
VALUES (:owner, :session, :kind, :key, greatest(:revision::bigint, 1 + {newest_deleted}), :created_at, :updated_at, :value,
    :data)
ON CONFLICT (owner, session, kind, key) DO UPDATE
SET revision = :revision::bigint, updated_at = excluded.updated_at, value = excluded.value, data = excluded.data
WHERE r.revision < :revision::bigint

-- name: records_stray
-- Return the sessions to which records belong that do not exist.
SELECT DISTINCT r.session FROM recollect.records AS r
WHERE r.owner = :owner AND r.session <> 0 AND NOT EXISTS (
    SELECT 1 FROM recollect.sessions AS s
    WHERE s.tree = r.session >> 20 AND s.number = (r.session & 1048575)::int AND s.owner = r.owner
)
