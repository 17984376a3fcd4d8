-- shared: suits
(:delegates OR s.relation IS NOT 'delegate')
AND (:archived IS NULL OR (s.archived_at IS NOT NULL) = :archived)
AND (:pinned IS NULL OR (s.pinned_at IS NOT NULL) = :pinned)
AND (:channels IS NULL OR s.channel IN (SELECT value FROM json_each(:channels)))
AND (:no_channels IS NULL OR s.channel IS NULL OR s.channel NOT IN (SELECT value FROM json_each(:no_channels)))
AND (:statuses IS NULL OR s.status IN (SELECT value FROM json_each(:statuses)))
AND (:no_statuses IS NULL OR s.status NOT IN (SELECT value FROM json_each(:no_statuses)))

-- shared: session
s.id, s.title, s.channel, s.archived_at, s.deleted_at, (SELECT p.id FROM sessions AS p WHERE p.key = s.parent)

-- name: search_behind
SELECT b.key, s.key, s.last
FROM sessions AS s CROSS JOIN branches AS b ON b.key = s.head
WHERE s.owner = :owner AND s.last > b.indexed_to
UNION ALL
SELECT b.key, b.session, b.last
FROM branches AS b CROSS JOIN trees AS t ON t.key = b.tree LEFT JOIN sessions AS s ON s.key = b.session
WHERE b.last > b.indexed_to AND t.owner = :owner AND (s.head IS NULL OR s.head <> b.key)

-- name: search_untitled
SELECT key, title FROM sessions INDEXED BY sessions_title_changed
WHERE owner = :owner AND title_changed = 1 LIMIT :limit

-- name: search_titled
UPDATE sessions SET title_changed = NULL WHERE key = :session

-- name: search_title_get
SELECT title FROM search_titles WHERE rowid = :session

-- name: search_title_delete
DELETE FROM search_titles WHERE rowid = :session

-- name: search_title_insert
INSERT INTO search_titles (rowid, title) VALUES (:session, :title)

-- name: search_place
SELECT indexed_to, fork_at, parent FROM branches WHERE key = :branch

-- name: search_read
SELECT key & 4294967295, role, state, blobs, CAST(parts AS BLOB)
FROM messages
WHERE key > (:branch << 32) | :low AND key <= (:branch << 32) | :high
ORDER BY key LIMIT :limit

-- name: search_state
SELECT state FROM messages WHERE key = (:branch << 32) | :position

-- name: search_tools
SELECT result & 4294967295, result_part, tool FROM tool_calls
WHERE message > (:of << 32) | :low AND message <= (:of << 32) | :high AND branch = :branch AND result IS NOT NULL

-- name: search_insert
INSERT INTO search_index (rowid, said, calls, results, tags) VALUES ((? << 32) | ?, ?, ?, ?, ?)

-- name: search_delete
INSERT INTO search_index (search_index, rowid, said, calls, results, tags)
VALUES ('delete', (? << 32) | ?, ?, ?, ?, ?)

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

-- name: search_empty_titles
DELETE FROM search_titles

-- name: search_restart
UPDATE branches SET indexed_to = 0

-- name: search_retitle
UPDATE sessions SET title_changed = 1

-- name: search_verify
INSERT INTO search_index (search_index) VALUES ('integrity-check')

-- name: search_sample
SELECT key, indexed_to FROM branches
WHERE indexed_to > fork_at AND tree IN (SELECT t.key FROM trees AS t WHERE t.owner = :owner)
ORDER BY key DESC LIMIT :limit

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

-- name: search_messages
SELECT search_index.rowid >> 32, search_index.rowid & 4294967295, recollect_rank(search_index, :weights)
FROM search_index
CROSS JOIN branches AS b ON b.key = search_index.rowid >> 32
LEFT JOIN sessions AS s ON s.key = b.session
WHERE search_index MATCH :match AND search_index.rowid < (:below_branch << 32) | :below_position
    AND CASE
        WHEN :ranges IS NOT NULL THEN EXISTS (
            SELECT 1 FROM json_each(:ranges) AS r
            WHERE r.value ->> 0 = b.key AND r.value ->> 1 < (search_index.rowid & 4294967295)
                AND r.value ->> 2 >= (search_index.rowid & 4294967295)
        )
        WHEN s.key IS NULL OR (s.deleted_at IS NOT NULL) <> :deleted
            THEN EXISTS (SELECT 1 FROM branches AS c WHERE c.parent = b.key)
        ELSE s.owner = :owner AND {suits}
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

-- name: search_hit
SELECT b.number, b.fork_at, b.parent, m.role, m.created_at, m.blobs, CAST(m.parts AS BLOB), {session}
FROM messages AS m JOIN branches AS b ON b.key = :branch LEFT JOIN sessions AS s ON s.key = b.session
WHERE m.key = (:branch << 32) | :position AND m.deleted_at IS NULL

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
SELECT bm25(search_titles), s.key, {session}, s.created_at
FROM search_titles CROSS JOIN sessions AS s ON s.key = search_titles.rowid
WHERE search_titles MATCH :match AND s.owner = :owner AND (s.deleted_at IS NOT NULL) = :deleted AND {suits}
    AND (:models IS NULL OR s.model IN (SELECT value FROM json_each(:models)))
    AND (:no_models IS NULL OR coalesce(s.model, '') NOT IN (SELECT value FROM json_each(:no_models)))
ORDER BY bm25(search_titles) LIMIT :pool
