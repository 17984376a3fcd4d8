-- Who has anything here: a check, a copy or a count of the whole database has to know. A role may set any owner already, so that
-- the names are no secret to it. They are shown while the transaction sets recollect.listing, and only for reading.

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
