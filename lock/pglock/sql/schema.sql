-- One row for each key that was ever locked. Rows stay: a row has the last token of its key. A new row's token
-- rests on the server's clock alone.
CREATE TABLE IF NOT EXISTS {table} (
    key    bytea       NOT NULL PRIMARY KEY CHECK (length(key) BETWEEN 1 AND 1024), -- UTF-8
    token  bigint      NOT NULL, -- of the last grant
    holder text        NOT NULL, -- the random value of the last grant
    owner  text        NOT NULL, -- who got it, for people
    since  timestamptz NOT NULL, -- when it was granted
    until  timestamptz NOT NULL, -- when it ends, or has ended; 1970 if it was released
    wanted boolean     NOT NULL  -- somebody waits: the release notifies
) WITH (fillfactor = 50); -- so that most updates need no new index entry
