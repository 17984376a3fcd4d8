-- shared: ranked
SELECT search_index.rowid >> 32, search_index.rowid & 4294967295, recollect_rank(search_index, :weights)
FROM search_index
CROSS JOIN branches AS b ON b.key = search_index.rowid >> 32
LEFT JOIN sessions AS s ON s.key = b.session
WHERE search_index MATCH :match AND search_index.rowid < coalesce((:below_branch << 32) | :below_position, 9223372036854775807)
    AND search_index.rowid >= (:low_branch << 32) | :low_position
    AND CASE
        WHEN :ranges IS NOT NULL THEN EXISTS (
            SELECT 1 FROM json_each(:ranges) AS r
            WHERE r.value ->> 0 = b.key AND r.value ->> 1 < (search_index.rowid & 4294967295)
                AND r.value ->> 2 >= (search_index.rowid & 4294967295)
        )
        WHEN s.owner <> :owner THEN 0
        WHEN s.key IS NOT NULL AND (s.deleted_at IS NOT NULL) = :deleted AND {suits} THEN 1
        ELSE EXISTS (SELECT 1 FROM branches AS c WHERE c.parent = b.key)
    END
    AND (:plain OR EXISTS (
        SELECT 1 FROM messages AS m
        WHERE m.key = search_index.rowid AND (:since IS NULL OR m.created_at >= :since)
            AND (:until IS NULL OR m.created_at < :until)
            AND (:models IS NULL OR coalesce(m.model, s.model) IN (SELECT value FROM json_each(:models)))
            AND (:no_models IS NULL OR coalesce(m.model, s.model, '')
                NOT IN (SELECT value FROM json_each(:no_models)))
    ))
ORDER BY search_index.rowid DESC LIMIT :pool

-- shared: suits
(:delegates OR s.relation IS NOT 'delegate')
AND (:archived IS NULL OR (s.archived_at IS NOT NULL) = :archived)
AND (:pinned IS NULL OR (s.pinned_at IS NOT NULL) = :pinned)
AND (:channels IS NULL OR s.channel IN (SELECT value FROM json_each(:channels)))
AND (:no_channels IS NULL OR s.channel IS NULL OR s.channel NOT IN (SELECT value FROM json_each(:no_channels)))
AND (:statuses IS NULL OR s.status IN (SELECT value FROM json_each(:statuses)))
AND (:no_statuses IS NULL OR s.status NOT IN (SELECT value FROM json_each(:no_statuses)))
AND (:no_sessions IS NULL OR s.id NOT IN (SELECT value FROM json_each(:no_sessions)))

-- shared: untitled
SELECT key, title FROM sessions INDEXED BY sessions_title_changed WHERE owner = :owner AND title_changed = 1

-- shared: mark
SELECT term FROM search_terms WHERE term < ' ' LIMIT 1

-- shared: indexing
SELECT m.key & 4294967295, m.role, m.state, m.blobs, CAST(m.parts AS BLOB)
FROM messages AS m
WHERE m.key > (:branch << 32) | :low AND m.key <= (:branch << 32) | :high

-- shared: session
s.id, s.title, s.channel, s.archived_at, s.deleted_at, (SELECT p.id FROM sessions AS p WHERE p.key = s.parent)

-- name: search_waiting
SELECT NULL, 0 * :many, NULL, ({mark}), EXISTS ({untitled})
UNION ALL
SELECT b.key, s.key, s.last, NULL, NULL
FROM sessions AS s CROSS JOIN branches AS b ON b.key = s.head
WHERE s.owner = :owner AND s.last > b.indexed_to
UNION ALL
SELECT b.key, b.session, b.last, NULL, NULL
FROM branches AS b CROSS JOIN trees AS t ON t.key = b.tree JOIN sessions AS s ON s.key = b.session
WHERE b.last > b.indexed_to AND t.owner = :owner AND s.head <> b.key
UNION ALL
SELECT b.key, NULL, m.key & 4294967295, NULL, NULL
FROM branches AS b CROSS JOIN trees AS t ON t.key = b.tree
CROSS JOIN messages AS m ON m.key = (
    SELECT n.key FROM messages AS n WHERE n.key <= (b.key << 32) | 4294967295 ORDER BY n.key DESC LIMIT 1
)
WHERE b.session IS NULL AND t.owner = :owner AND m.key > (b.key << 32) | b.indexed_to

-- name: search_unsettled
SELECT 1 WHERE false

-- name: search_settle
SELECT 1 WHERE false

-- name: search_untitled
{untitled} LIMIT :limit

-- name: search_titled
UPDATE sessions SET title_changed = NULL WHERE key = :session

-- name: search_title_get
SELECT title FROM search_titles WHERE rowid = :session

-- name: search_title_delete
DELETE FROM search_titles WHERE rowid = :session

-- name: search_title_insert
INSERT INTO search_titles (rowid, title) VALUES (:session, :title)

-- name: search_place
SELECT indexed_to FROM branches WHERE key = :branch

-- name: search_unindexed
{indexing}    AND NOT EXISTS (SELECT 1 FROM search_index_docsize AS d WHERE d.id = m.key)
ORDER BY m.key LIMIT :limit

-- name: search_indexed
{indexing}    AND EXISTS (SELECT 1 FROM search_index_docsize AS d WHERE d.id = m.key)
ORDER BY m.key LIMIT :limit

-- name: search_counted
SELECT count(*) FROM search_index_docsize WHERE id > (:branch << 32) | :low AND id <= (:branch << 32) | :high

-- name: search_growing
SELECT 1 FROM messages AS m JOIN turns AS t ON t.key = (:branch << 32) | m.turn
WHERE m.key = (:branch << 32) | :position AND m.state IN ('pending', 'streaming') AND t.status = 'open'

-- name: search_tools
SELECT message & 4294967295, result & 4294967295, result_part, tool FROM tool_calls
WHERE message > (:of << 32) | :low AND message <= (:of << 32) | :high AND branch = :branch AND result IS NOT NULL

-- name: search_insert
INSERT INTO search_index (rowid, said, calls, results, tags) VALUES ((? << 32) | ?, ?, ?, ?, ?)

-- name: search_delete
INSERT INTO search_index (search_index, rowid, said, calls, results, tags)
VALUES ('delete', (? << 32) | ?, ?, ?, ?, ?)

-- name: search_mark
{mark}

-- name: search_term_insert
INSERT INTO search_terms (term) VALUES (?) ON CONFLICT (term) DO NOTHING

-- name: search_reached
UPDATE branches SET indexed_to = :position WHERE key = :branch

-- name: search_lower
UPDATE branches SET indexed_to = :position WHERE key = :branch AND indexed_to > :position

-- name: search_secure
INSERT INTO search_index (search_index, rank) VALUES ('secure-delete', :value)

-- name: search_total
SELECT count(*) FROM search_index_docsize

-- name: search_optimize
INSERT INTO search_index (search_index) VALUES ('optimize')

-- name: search_nudge
INSERT INTO search_index (rowid, tags) VALUES (0, 'a')

-- name: search_nudge_back
INSERT INTO search_index (search_index, rowid, tags) VALUES ('delete', 0, 'a')

-- name: search_terms_sweep
DELETE FROM search_terms WHERE term IN (
    SELECT w.value FROM json_each(:terms) AS w
    WHERE NOT EXISTS (SELECT 1 FROM search_index WHERE search_index MATCH '"' || w.value || '"')
        AND NOT EXISTS (SELECT 1 FROM search_titles WHERE search_titles MATCH '"' || w.value || '"')
)

-- name: search_empty
INSERT INTO search_index (search_index) VALUES ('delete-all')

-- name: search_empty_terms
DELETE FROM search_terms

-- name: search_mend_titles
INSERT INTO search_titles (search_titles) VALUES ('rebuild')

-- name: search_empty_titles
DELETE FROM search_titles

-- name: search_restart
UPDATE branches SET indexed_to = 0

-- name: search_retitle
UPDATE sessions SET title_changed = 1

-- name: search_verify
INSERT INTO search_index (search_index) VALUES ('integrity-check')

-- name: search_sample
SELECT b.key, b.indexed_to FROM branches AS b
WHERE b.indexed_to > b.fork_at AND EXISTS (SELECT 1 FROM trees AS t WHERE t.key = b.tree AND t.owner = :owner)
ORDER BY b.key DESC LIMIT :limit

-- name: search_has
SELECT 1 FROM search_index WHERE search_index MATCH :match AND search_index.rowid = (:branch << 32) | :position

-- name: search_count
SELECT count(*) FROM (SELECT 1 FROM search_index WHERE search_index MATCH :match LIMIT :most)

-- name: search_terms_with
SELECT term FROM search_terms
WHERE instr(term, :piece) AND (NOT :ending OR substr(term, -length(:piece)) = :piece)
ORDER BY length(term), term LIMIT :limit

-- name: search_ranges
WITH RECURSIVE path (key, parent, low, high) AS (
    SELECT b.key, b.parent, b.fork_at, CASE WHEN s.head = b.key THEN s.last ELSE b.last END
    FROM branches AS b JOIN sessions AS s ON s.key = b.session
    WHERE b.session = :session
    UNION
    SELECT b.key, b.parent, b.fork_at, p.low FROM path AS p JOIN branches AS b ON b.key = p.parent
)
SELECT key, min(low), max(high) FROM path GROUP BY key

-- name: search_suits
SELECT 1 FROM sessions AS s WHERE s.key = :session AND {suits}

-- name: search_messages
{ranked}

-- name: search_few
{ranked}

-- name: search_dense
SELECT 0, 0, 0, 0, 0, 0 WHERE :sought AND :loose AND :sample

-- name: search_since
SELECT 0 WHERE :owner AND :many AND false

-- name: search_newest
{ranked}

-- name: search_hits
SELECT m.key >> 32, m.key & 4294967295, b.number, m.role, m.created_at, m.blobs, CAST(m.parts AS BLOB),
    s.owner = :owner AND (s.deleted_at IS NOT NULL) = :deleted AND {suits}, {session}
FROM json_each(:hits) AS h
CROSS JOIN messages AS m ON m.key = ((h.value ->> 0) << 32) | (h.value ->> 1)
CROSS JOIN branches AS b ON b.key = h.value ->> 0
LEFT JOIN sessions AS s ON s.key = b.session
WHERE m.deleted_at IS NULL

-- name: search_hits_tools
WITH RECURSIVE path (branch, position, key, parent, fork_at, high) AS (
    SELECT b.key, h.value ->> 1, b.key, b.parent, b.fork_at, h.value ->> 1
    FROM json_each(:hits) AS h CROSS JOIN branches AS b ON b.key = h.value ->> 0
    UNION ALL
    SELECT p.branch, p.position, b.key, b.parent, b.fork_at, p.fork_at
    FROM path AS p CROSS JOIN branches AS b ON b.key = p.parent
    WHERE p.fork_at > p.position - :near
)
SELECT p.branch, p.position, c.result_part, c.tool
FROM path AS p
CROSS JOIN tool_calls AS c ON c.message > (p.key << 32) | max(p.fork_at, p.position - :near)
    AND c.message <= (p.key << 32) | p.high AND c.branch = p.branch AND c.result = (p.branch << 32) | p.position

-- name: search_reaching
WITH RECURSIVE below (key) AS (
    SELECT c.key FROM branches AS c WHERE c.parent = :branch AND c.fork_at >= :position
    UNION
    SELECT c.key FROM below AS p JOIN branches AS c ON c.parent = p.key
)
SELECT {session}
FROM below AS p JOIN branches AS b ON b.key = p.key JOIN sessions AS s ON s.key = b.session
WHERE s.owner = :owner AND (s.deleted_at IS NOT NULL) = :deleted AND {suits}
ORDER BY s.active_at DESC LIMIT 1

-- name: search_titles_match
SELECT 0, s.key, recollect_rank(search_titles, :weights), {session}, s.created_at
FROM search_titles CROSS JOIN sessions AS s ON s.key = search_titles.rowid
WHERE search_titles MATCH :match AND search_titles.rowid < coalesce(:below, 9223372036854775807) AND search_titles.rowid >= :low AND s.owner = :owner AND (s.deleted_at IS NOT NULL) = :deleted AND {suits}
    AND (:models IS NULL OR s.model IN (SELECT value FROM json_each(:models)))
    AND (:no_models IS NULL OR coalesce(s.model, '') NOT IN (SELECT value FROM json_each(:no_models)))
ORDER BY search_titles.rowid DESC LIMIT :pool
