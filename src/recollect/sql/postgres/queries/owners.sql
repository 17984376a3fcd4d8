-- owners_visible: owners_all shows every owner if only the policies of the migrations exist and none restricts this role.

-- name: owners_all_settings
-- Make the settings for owners_all.
SELECT set_config('recollect.listing', 'on', true)

-- name: owners_all
-- Return every owner that has data.
SELECT owner FROM recollect.trees
UNION SELECT owner FROM recollect.blobs
UNION SELECT owner FROM recollect.records WHERE kind <> 'recollect.deleted'
ORDER BY 1

-- name: owners_visible
-- Return whether owners_all shows every owner to this role.
SELECT r.rolsuper OR r.rolbypassrls OR NOT EXISTS (
    SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'recollect' AND c.relrowsecurity AND (
        EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = c.oid AND NOT p.polpermissive)
        OR NOT EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = c.oid AND p.polcmd = '*' AND 0 = ANY(p.polroles))
        OR c.relname IN ('trees', 'blobs', 'records') AND NOT EXISTS (
            SELECT FROM pg_policy AS p
            WHERE p.polrelid = c.oid AND p.polname = c.relname || '_listing' AND 0 = ANY(p.polroles)
        )
    )
) AS everyone
FROM pg_roles AS r WHERE r.rolname = current_user
