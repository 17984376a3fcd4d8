-- A key is a parameter of bytes in UTF-8, so that a bound of a range need not be a text. Session 0 is the store. In a comparison of
-- rows, a CAST without the plus sign would hide the second column from the index.

-- shared: is_record
-- Condition: this record.
{of_kind} AND key = CAST(:key AS TEXT)

-- shared: of_kind
-- Condition: a record of this kind, of the session or of the store.
owner = :owner AND session = :session AND kind = :kind

-- shared: record_state
-- The columns that a write returns.
revision, created_at, updated_at

-- shared: newest_deleted
-- The highest revision that a deleted record of the kind :mark had, or 0.
coalesce((
    SELECT m.revision FROM records AS m
    WHERE m.owner = :owner AND m.session = :session AND m.kind = 'recollect.deleted' AND m.key = CAST(:mark AS TEXT)
), 0)

-- name: record_get
-- Return a record.
SELECT {record_state}, value, data FROM records WHERE {is_record}

-- name: record_revision
-- Return the revision of a record.
SELECT revision FROM records WHERE {is_record}

-- name: record_put
-- Create or replace a record; no row if it exists and another revision is expected.
INSERT INTO records (owner, session, kind, key, created_at, updated_at, value, data)
VALUES (:owner, :session, :kind, CAST(:key AS TEXT), :now, :now, :value, :data)
ON CONFLICT (owner, session, kind, key) DO UPDATE
SET revision = revision + 1, updated_at = max(updated_at, excluded.updated_at), value = excluded.value, data = excluded.data
WHERE :expected IS NULL
RETURNING {record_state}

-- name: record_replace
-- Replace a record that has the expected revision.
UPDATE records SET revision = revision + 1, updated_at = max(updated_at, :now), value = :value, data = :data
WHERE {is_record} AND revision = :expected
RETURNING {record_state}

-- name: record_raise
-- Give a new record a revision that no deleted record of its kind had; no row if it has one.
UPDATE records SET revision = 1 + {newest_deleted} WHERE {is_record} AND revision <= {newest_deleted}
RETURNING {record_state}

-- name: record_touch
-- Set the time of a record to now; no row if it does not exist.
UPDATE records SET updated_at = :now WHERE {is_record}
RETURNING revision

-- name: record_delete
-- Delete a record, if it has the expected revision or none is expected.
DELETE FROM records WHERE {is_record} AND (:expected IS NULL OR revision = :expected)
RETURNING revision

-- name: record_mark_deleted
-- Store the highest revision that a deleted record of a kind had, in a record whose key is the kind.
INSERT INTO records (owner, session, kind, key, revision, created_at, updated_at, value)
SELECT :owner, :session, 'recollect.deleted', CAST(:mark AS TEXT), :revision, :now, :now, 'null'
WHERE {newest_deleted} < :revision
ON CONFLICT (owner, session, kind, key) DO UPDATE
SET revision = max(revision, excluded.revision), updated_at = excluded.updated_at

-- name: records_page
-- Return records of a kind in a range of keys, in their order.
SELECT CAST(key AS BLOB) AS key, {record_state}, value, data FROM records
WHERE {of_kind} AND key >= CAST(:low AS TEXT) AND key < CAST(:high AS TEXT)
ORDER BY records.key LIMIT :limit

-- name: records_of_sessions
-- Return the records of a kind of the sessions with these ids, a JSON array as in messages_keyed; also sessions without one.
SELECT s.id, CAST(r.key AS BLOB) AS key, r.value
FROM json_each(:ids) AS i
CROSS JOIN sessions AS s ON s.owner = :owner AND s.id = CAST(unhex(i.value, ' ') AS TEXT) AND s.deleted_at IS NULL
LEFT JOIN records AS r ON r.owner = :owner AND r.session = s.key AND r.kind = :kind

-- name: records_delete
-- Delete records of a kind in a range of keys.
DELETE FROM records WHERE {of_kind} AND key >= CAST(:low AS TEXT) AND key < CAST(:high AS TEXT)
RETURNING revision

-- name: records_erase
-- Delete the records of a session.
DELETE FROM records WHERE owner = :owner AND session = :session

-- name: records_sizes
-- Return the names and the sizes in bytes of a page of records of all kinds, for an export.
SELECT kind, CAST(key AS BLOB) AS key, coalesce(octet_length(value), 0) + coalesce(octet_length(data), 0) AS size FROM records
WHERE owner = :owner AND session = :session AND (kind, key) > (:kind, +CAST(:key AS TEXT))
ORDER BY kind, records.key LIMIT :limit

-- name: records_rows
-- Return records of all kinds between two names.
SELECT kind, CAST(key AS BLOB) AS key, {record_state}, value, data FROM records
WHERE owner = :owner AND session = :session AND (kind, key) > (:kind, +CAST(:key AS TEXT))
    AND (kind, key) <= (:last_kind, +CAST(:last_key AS TEXT))
ORDER BY kind, records.key

-- name: record_copy
-- Insert a record with all its columns, or replace it, for a copy.
INSERT INTO records (owner, session, kind, key, revision, created_at, updated_at, value, data)
VALUES (?, ?, ?, CAST(? AS TEXT), ?, ?, ?, ?, ?)
ON CONFLICT (owner, session, kind, key) DO UPDATE
SET revision = excluded.revision, created_at = excluded.created_at, updated_at = excluded.updated_at, value = excluded.value,
    data = excluded.data

-- name: record_import
-- Insert a record with its times, or replace one with a lower revision.
INSERT INTO records (owner, session, kind, key, revision, created_at, updated_at, value, data)
VALUES (:owner, :session, :kind, CAST(:key AS TEXT), max(:revision, 1 + {newest_deleted}), :created_at, :updated_at, :value,
    :data)
ON CONFLICT (owner, session, kind, key) DO UPDATE
SET revision = :revision, updated_at = excluded.updated_at, value = excluded.value, data = excluded.data
WHERE revision < :revision

-- name: records_stray
-- Return the sessions to which records belong that do not exist.
SELECT DISTINCT r.session FROM records AS r
WHERE r.owner = :owner AND r.session <> 0
    AND NOT EXISTS (SELECT 1 FROM sessions AS s WHERE s.key = r.session AND s.owner = r.owner)
