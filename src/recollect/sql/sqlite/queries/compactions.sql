-- name: compactions_erase
DELETE FROM compactions WHERE branch = :branch AND to_position > :low
