-- Full-text search. The index of messages is contentless: it holds no text and can be rebuilt from the messages.

ALTER TABLE sessions ADD COLUMN title_changed INTEGER DEFAULT 1;

CREATE INDEX sessions_title_changed ON sessions (owner) WHERE title_changed = 1;

CREATE VIRTUAL TABLE search_index USING fts5(
    said, calls, results, tags,
    content = '', tokenize = "unicode61 remove_diacritics 0 categories 'L* N* Co So'"
);

INSERT INTO search_index (search_index, rank) VALUES ('secure-delete', 1), ('hashsize', 16777216);

CREATE VIRTUAL TABLE search_titles USING fts5(
    title, tokenize = "unicode61 remove_diacritics 0 categories 'L* N* Co So'"
);

INSERT INTO search_titles (search_titles, rank) VALUES ('secure-delete', 1);

CREATE TABLE search_terms (term TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
