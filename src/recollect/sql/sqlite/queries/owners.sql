-- name: owners_all
-- Return every owner that has data.
SELECT owner FROM trees UNION SELECT owner FROM blobs UNION SELECT owner FROM records WHERE kind <> 'recollect.deleted' ORDER BY 1

-- name: owners_visible
-- Return whether owners_all shows every owner to this role.
SELECT 1 AS everyone
