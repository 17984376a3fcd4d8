-- name: pin_insert
INSERT INTO recollect.pins (tree, branch, position) VALUES (?1::bigint >> 20, (?1::bigint & 1048575)::int, ?2)
ON CONFLICT (tree, branch, position) DO NOTHING

-- name: pin_delete
DELETE FROM recollect.pins
WHERE tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int AND position = :position

-- name: pins_erase
DELETE FROM recollect.pins
WHERE tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int AND position > :low
