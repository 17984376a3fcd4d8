-- Indexes for the filters and sort orders of lists. None of them contains a column that an append changes.

CREATE INDEX sessions_channel ON sessions (owner, channel) WHERE channel IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_model ON sessions (owner, model) WHERE model IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_status ON sessions (owner, status) WHERE status <> 'active' AND deleted_at IS NULL;
CREATE INDEX sessions_pinned ON sessions (owner, pinned_at) WHERE pinned_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_archived ON sessions (owner, archived_at) WHERE archived_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX sessions_untitled ON sessions (owner) WHERE title IS NULL AND deleted_at IS NULL;

-- The sort keys of titles, in a separate table, because an append rewrites the row of its session.
CREATE TABLE titles (
    session INTEGER PRIMARY KEY REFERENCES sessions (key) ON DELETE CASCADE,
    owner TEXT NOT NULL,
    folded TEXT NOT NULL
) STRICT;

CREATE INDEX titles_folded ON titles (owner, folded);

INSERT INTO titles (session, owner, folded) SELECT key, owner, lower(title) FROM sessions WHERE title IS NOT NULL;
