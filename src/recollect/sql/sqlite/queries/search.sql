-- shared: session_filters
-- Conditions on the session of a hit; a parameter that is NULL does not filter. SQLite ends a name in a path at NUL, so U+FFFF replaces it
-- in metadata.
(:delegates OR s.relation IS NOT 'delegate')
AND (:archived IS NULL OR (s.archived_at IS NOT NULL) = :archived)
AND (:pinned IS NULL OR (s.pinned_at IS NOT NULL) = :pinned)
AND (:channels IS NULL OR s.channel IN (SELECT value FROM json_each(:channels)))
AND (:no_channels IS NULL OR s.channel IS NULL OR s.channel NOT IN (SELECT value FROM json_each(:no_channels)))
AND (:statuses IS NULL OR s.status IN (SELECT value FROM json_each(:statuses)))
AND (:no_statuses IS NULL OR s.status NOT IN (SELECT value FROM json_each(:no_statuses)))
AND (:no_sessions IS NULL OR s.id NOT IN (
    SELECT {nul_restored} FROM (SELECT value AS id FROM json_each(:no_sessions))
))
AND (:external_id IS NULL OR s.external_id = :external_id)
AND (:id_prefix IS NULL OR s.id >= :id_prefix AND s.id <= :id_limit)
AND (:labels IS NULL OR NOT EXISTS (
    SELECT 1 FROM json_each(:labels) AS l WHERE l.value NOT IN (SELECT o.value FROM json_each(s.labels) AS o)
))
AND (:no_labels IS NULL OR NOT EXISTS (
    SELECT 1 FROM json_each(s.labels) AS l WHERE l.value IN (SELECT o.value FROM json_each(:no_labels) AS o)
))
AND (:metadata IS NULL OR NOT EXISTS (
    SELECT 1 FROM (SELECT replace(value, '\u0000', '\uFFFF0000') AS value FROM json_each(:metadata)) AS f
    WHERE coalesce(replace(s.metadata, '\u0000', '\uFFFF0000') -> ('$.' || (f.value -> 0)), '') NOT IN (f.value ->> 1, f.value ->> 2)
))

-- shared: nul_restored
-- An id of a JSON parameter, in which model/json.py has escaped NUL: the JSON functions would end the text there.
CASE WHEN instr(id, char(16)) THEN replace(replace(id, char(16) || '0', char(0)), char(16) || 'p', char(16)) ELSE id END

-- shared: changed_titles
-- The titles that are not indexed.
SELECT key AS session, title FROM sessions INDEXED BY sessions_title_changed WHERE owner = :owner AND title_changed = 1

-- shared: index_mark
-- The generation mark of the index, stored as a term. It begins with a control character, which no word contains.
SELECT term AS mark FROM search_terms WHERE term < ' ' LIMIT 1

-- shared: index_rows
-- The messages of a span, with the columns that indexing reads.
SELECT m.key & 4294967295 AS position, m.role, m.state, m.blobs, CAST(m.parts AS BLOB) AS parts
FROM messages AS m
WHERE m.key > (:branch << 32) | :low AND m.key <= (:branch << 32) | :high

-- shared: session_columns
-- The columns of the session that a hit shows.
s.id, s.title, s.channel, s.archived_at, s.deleted_at, (SELECT p.id FROM sessions AS p WHERE p.key = s.parent) AS parent_id

-- name: search_backlog
-- Return the index mark and the branches and titles that are not indexed.
SELECT NULL AS branch, NULL AS session, NULL AS last, ({index_mark}) AS mark, EXISTS ({changed_titles}) AS titles
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

-- name: search_changed_titles
-- Return a page of titles that changed since they were indexed.
{changed_titles} LIMIT :limit

-- name: search_title_indexed
-- Mark the title of a session as indexed.
UPDATE sessions SET title_changed = NULL WHERE key = :session

-- name: search_title_get
-- Return a title as it is indexed.
SELECT title FROM search_titles WHERE rowid = :session

-- name: search_title_delete
-- Remove a title from the index.
DELETE FROM search_titles WHERE rowid = :session

-- name: search_title_insert
-- Add a title to the index.
INSERT INTO search_titles (rowid, title) VALUES (:session, :title)

-- name: search_indexed_to
-- Return up to which position a branch is indexed without a gap.
SELECT indexed_to AS position FROM branches WHERE key = :branch

-- name: search_unindexed
-- Return messages of a span that are not in the index.
{index_rows}
    AND NOT EXISTS (SELECT 1 FROM search_index_docsize AS d WHERE d.id = m.key)
ORDER BY m.key LIMIT :limit

-- name: search_indexed
-- Return messages of a span that are in the index.
{index_rows}
    AND EXISTS (SELECT 1 FROM search_index_docsize AS d WHERE d.id = m.key)
ORDER BY m.key LIMIT :limit

-- name: search_count_range
-- Count the indexed messages of a span.
SELECT count(*) AS entries FROM search_index_docsize WHERE id > (:branch << 32) | :low AND id <= (:branch << 32) | :high

-- name: search_unfinished
-- Return a row if a message is still being written by an open turn.
SELECT 1 AS one FROM messages AS m JOIN turns AS t ON t.key = (:branch << 32) | m.turn
WHERE m.key = (:branch << 32) | :position AND m.state IN ('pending', 'streaming') AND t.status = 'open'

-- name: search_tools
-- Return the tool names of results on a branch whose calls are in a span.
SELECT message & 4294967295 AS position, result & 4294967295 AS result, result_part AS part, tool FROM tool_calls
WHERE message > (:call_branch << 32) | :low AND message <= (:call_branch << 32) | :high AND branch = :branch AND result IS NOT NULL

-- name: search_insert
-- Add a message to the index.
INSERT INTO search_index (rowid, said, calls, results, tags) VALUES ((? << 32) | ?, ?, ?, ?, ?)

-- name: search_delete
-- Remove a message from the index; FTS5 needs the same text again.
INSERT INTO search_index (search_index, rowid, said, calls, results, tags)
VALUES ('delete', (? << 32) | ?, ?, ?, ?, ?)

-- name: search_mark
-- Return the generation mark of the index, which changes each time that the index is cleared.
{index_mark}

-- name: search_term_insert
-- Add a word to the list of indexed words.
INSERT INTO search_terms (term) VALUES (?) ON CONFLICT (term) DO NOTHING

-- name: search_set_indexed_to
-- Set the position up to which a branch is indexed.
UPDATE branches SET indexed_to = :position WHERE key = :branch

-- name: search_lower_indexed_to
-- Lower the position up to which a branch is indexed.
UPDATE branches SET indexed_to = :position WHERE key = :branch AND indexed_to > :position

-- name: search_set_secure_delete
-- Turn secure deletion of index entries on or off.
INSERT INTO search_index (search_index, rank) VALUES ('secure-delete', :value)

-- name: search_total
-- Count the indexed messages.
SELECT count(*) AS entries FROM search_index_docsize

-- name: search_optimize
-- Merge the segments of the index.
INSERT INTO search_index (search_index) VALUES ('optimize')

-- name: search_add_marker
-- Add a temporary entry, so that the next optimize merges all levels.
INSERT INTO search_index (rowid, tags) VALUES (0, 'a')

-- name: search_remove_marker
-- Remove the temporary entry of search_add_marker.
INSERT INTO search_index (search_index, rowid, tags) VALUES ('delete', 0, 'a')

-- name: search_terms_delete_unused
-- Delete words that no message and no title has any more.
DELETE FROM search_terms WHERE term IN (
    SELECT w.value FROM json_each(:terms) AS w
    WHERE NOT EXISTS (SELECT 1 FROM search_index WHERE search_index MATCH '"' || w.value || '"')
        AND NOT EXISTS (SELECT 1 FROM search_titles WHERE search_titles MATCH '"' || w.value || '"')
)

-- name: search_clear
-- Delete all entries of the message index.
INSERT INTO search_index (search_index) VALUES ('delete-all')

-- name: search_clear_terms
-- Delete the list of indexed words.
DELETE FROM search_terms

-- name: search_rebuild_titles
-- Rebuild the title index, so that deleting from it cannot fail.
INSERT INTO search_titles (search_titles) VALUES ('rebuild')

-- name: search_clear_titles
-- Delete all entries of the title index.
DELETE FROM search_titles

-- name: search_reset_branches
-- Mark every branch as not indexed.
UPDATE branches SET indexed_to = 0

-- name: search_reset_titles
-- Mark every title as not indexed.
UPDATE sessions SET title_changed = 1

-- name: search_verify
-- Check the structure of the index.
INSERT INTO search_index (search_index) VALUES ('integrity-check')

-- name: search_sample
-- Return the last indexed message of some branches, for a check.
SELECT b.key AS branch, b.indexed_to AS position FROM branches AS b
WHERE b.indexed_to > b.fork_at AND EXISTS (SELECT 1 FROM trees AS t WHERE t.key = b.tree AND t.owner = :owner)
ORDER BY b.key DESC LIMIT :limit

-- name: search_contains
-- Return a row if the index finds a message by an expression.
SELECT 1 AS one FROM search_index WHERE search_index MATCH :expression AND search_index.rowid = (:branch << 32) | :position

-- name: search_count
-- Count the messages that match an expression, up to a limit.
SELECT count(*) AS matches FROM (SELECT 1 FROM search_index WHERE search_index MATCH :expression LIMIT :max_count)

-- name: search_terms_with
-- Return indexed words that contain a piece, shortest first.
SELECT term FROM search_terms
WHERE instr(term, :piece) AND (NOT :ending OR substr(term, -length(:piece)) = :piece)
ORDER BY length(term), term LIMIT :limit

-- name: search_ranges
-- Return the branch spans that a session reaches, on all its branches.
WITH RECURSIVE path (key, parent, low, high) AS (
    SELECT b.key, b.parent, b.fork_at, CASE WHEN s.head = b.key THEN s.last ELSE b.last END
    FROM branches AS b JOIN sessions AS s ON s.key = b.session
    WHERE b.session = :session
    UNION
    SELECT b.key, b.parent, b.fork_at, p.low FROM path AS p JOIN branches AS b ON b.key = p.parent
)
SELECT key AS branch, min(low) AS low, max(high) AS high FROM path GROUP BY key

-- name: search_session_matches
-- Return a row if a session passes the filters of a search.
SELECT 1 AS one FROM sessions AS s WHERE s.key = :session AND {session_filters}

-- name: search_messages
-- Return the newest messages that match an FTS5 expression and the filters, with their rank. A message of a session that
-- does not pass the filters stays if a fork shares it; the fork is tested later.
SELECT search_index.rowid >> 32 AS branch, search_index.rowid & 4294967295 AS position,
    recollect_rank(search_index, :weights) AS rank
FROM search_index
CROSS JOIN branches AS b ON b.key = search_index.rowid >> 32
LEFT JOIN sessions AS s ON s.key = b.session
WHERE search_index MATCH :expression AND search_index.rowid < coalesce((:below_branch << 32) | :below_position, 9223372036854775807)
    AND search_index.rowid >= (:low_branch << 32) | :low_position
    AND CASE
        WHEN :ranges IS NOT NULL THEN EXISTS (
            SELECT 1 FROM json_each(:ranges) AS r
            WHERE r.value ->> 0 = b.key AND r.value ->> 1 < (search_index.rowid & 4294967295)
                AND r.value ->> 2 >= (search_index.rowid & 4294967295)
        )
        WHEN s.owner <> :owner THEN 0
        WHEN s.key IS NOT NULL AND (s.deleted_at IS NOT NULL) = :deleted AND {session_filters} THEN 1
        ELSE EXISTS (SELECT 1 FROM branches AS c WHERE c.parent = b.key)
    END
    AND (:unfiltered OR EXISTS (
        SELECT 1 FROM messages AS m
        WHERE m.key = search_index.rowid AND (:since IS NULL OR m.created_at >= :since)
            AND (:until IS NULL OR m.created_at < :until)
            AND (:models IS NULL OR coalesce(m.model, s.model) IN (SELECT value FROM json_each(:models)))
            AND (:no_models IS NULL OR coalesce(m.model, s.model, '')
                NOT IN (SELECT value FROM json_each(:no_models)))
    ))
ORDER BY search_index.rowid DESC LIMIT :pool

-- name: search_hits
-- Return the messages of hits and the sessions that they belong to.
SELECT m.key >> 32 AS branch, m.key & 4294967295 AS position, b.number, m.role, m.created_at, m.blobs,
    CAST(m.parts AS BLOB) AS parts,
    s.owner = :owner AND (s.deleted_at IS NOT NULL) = :deleted AND {session_filters} AS session_matches, {session_columns}
FROM json_each(:hits) AS h
CROSS JOIN messages AS m ON m.key = ((h.value ->> 0) << 32) | (h.value ->> 1)
CROSS JOIN branches AS b ON b.key = h.value ->> 0
LEFT JOIN sessions AS s ON s.key = b.session
WHERE m.deleted_at IS NULL

-- name: search_hits_tools
-- Return the tool names of the tool results among hits.
WITH RECURSIVE path (branch, position, key, parent, fork_at, high) AS (
    SELECT b.key, h.value ->> 1, b.key, b.parent, b.fork_at, h.value ->> 1
    FROM json_each(:hits) AS h CROSS JOIN branches AS b ON b.key = h.value ->> 0
    UNION ALL
    SELECT p.branch, p.position, b.key, b.parent, b.fork_at, p.fork_at
    FROM path AS p CROSS JOIN branches AS b ON b.key = p.parent
    WHERE p.fork_at > p.position - :call_distance
)
SELECT p.branch, p.position, c.result_part AS part, c.tool
FROM path AS p
CROSS JOIN tool_calls AS c ON c.message > (p.key << 32) | max(p.fork_at, p.position - :call_distance)
    AND c.message <= (p.key << 32) | p.high AND c.branch = p.branch AND c.result = (p.branch << 32) | p.position

-- name: search_sharing_session
-- Return a session that shares a message and passes the filters of a search.
WITH RECURSIVE descendants (key) AS (
    SELECT c.key FROM branches AS c WHERE c.parent = :branch AND c.fork_at >= :position
    UNION
    SELECT c.key FROM descendants AS p JOIN branches AS c ON c.parent = p.key
)
SELECT {session_columns}
FROM descendants AS p JOIN branches AS b ON b.key = p.key JOIN sessions AS s ON s.key = b.session
WHERE s.owner = :owner AND (s.deleted_at IS NOT NULL) = :deleted AND {session_filters}
ORDER BY s.active_at DESC LIMIT 1

-- name: search_titles_match
-- Return the titles that match, with their rank.
SELECT s.key AS session, recollect_rank(search_titles, :weights) AS rank, {session_columns}, s.created_at
FROM search_titles CROSS JOIN sessions AS s ON s.key = search_titles.rowid
WHERE search_titles MATCH :expression
    AND search_titles.rowid < coalesce(:below, 9223372036854775807) AND search_titles.rowid >= :low
    AND s.owner = :owner AND (s.deleted_at IS NOT NULL) = :deleted AND {session_filters}
    AND (:models IS NULL OR s.model IN (SELECT value FROM json_each(:models)))
    AND (:no_models IS NULL OR coalesce(s.model, '') NOT IN (SELECT value FROM json_each(:no_models)))
ORDER BY search_titles.rowid DESC LIMIT :pool
