-- name: pin_insert
INSERT INTO pins (message) VALUES ((? << 32) | ?) ON CONFLICT (message) DO NOTHING

-- name: pin_delete
DELETE FROM pins WHERE message = (:branch << 32) | :position

-- name: pins_erase
DELETE FROM pins WHERE message > (:branch << 32) | :low AND message <= (:branch << 32) | 4294967295
