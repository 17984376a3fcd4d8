CREATE TABLE pins (
    message INTEGER PRIMARY KEY
) STRICT;

INSERT INTO pins
SELECT key FROM messages WHERE role = 'system' OR (json_valid(metadata) AND metadata ->> '$.pinned' = 1);
