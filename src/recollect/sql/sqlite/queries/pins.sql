-- name: pin_insert
-- Pin a message, so that every history includes it.
INSERT INTO pins (message) VALUES ((? << 32) | ?) ON CONFLICT (message) DO NOTHING

-- name: pin_delete
-- Remove a message from the pins.
DELETE FROM pins WHERE message = (:branch << 32) | :position

-- name: pins_erase
-- Delete the pins of a branch after a position.
DELETE FROM pins WHERE message > (:branch << 32) | :low AND message <= (:branch << 32) | 4294967295
