-- Make the names of all owners readable: a check, a copy or a count of the whole database needs them. A role can already set any
-- owner, so the names are not secret from it. The policies show the rows while the transaction sets recollect.listing, and only to
-- SELECT.

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['trees', 'blobs', 'settings'] LOOP
        EXECUTE format(
            'CREATE POLICY %I ON recollect.%I FOR SELECT USING ((SELECT current_setting(''recollect.listing'', true)) = ''on'')',
            name || '_listing', name
        );
    END LOOP;
END $$;
