-- name: pin_insert
-- Pin a message, so that every history includes it.
INSERT INTO recollect.pins (tree, branch, position) VALUES (?1::bigint >> 20, (?1::bigint & 1048575)::int, ?2)
ON CONFLICT (tree, branch, position) DO NOTHING

-- name: pin_delete
-- Remove a message from the pins.
DELETE FROM recollect.pins
WHERE tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int AND position = :position

-- name: pins_erase
-- Delete the pins of a branch after a position.
DELETE FROM recollect.pins
WHERE tree = :branch::bigint >> 20 AND branch = (:branch::bigint & 1048575)::int AND position > :low
