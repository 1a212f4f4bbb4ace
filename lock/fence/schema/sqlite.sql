-- The tables of Signalbox' guards, version 1, for SQLite.

-- The largest token that has entered, for each resource. Rows are never deleted.
CREATE TABLE IF NOT EXISTS signalbox_fence (
    name   TEXT    NOT NULL PRIMARY KEY,
    issuer TEXT    NOT NULL,
    holder TEXT    NOT NULL,
    token  INTEGER NOT NULL
);

-- The effects that were had. born is in microseconds since 1970.
CREATE TABLE IF NOT EXISTS signalbox_once (
    namespace TEXT    NOT NULL,
    effect    TEXT    NOT NULL,
    step      TEXT    NOT NULL,
    born      INTEGER NOT NULL,
    token     INTEGER NOT NULL,
    result    BLOB,
    PRIMARY KEY (namespace, effect, step)
);
CREATE INDEX IF NOT EXISTS signalbox_once_born ON signalbox_once (born);

-- Effects that were born before this may have been forgotten. One row.
CREATE TABLE IF NOT EXISTS signalbox_horizon (
    id   INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    born INTEGER NOT NULL
);
INSERT INTO signalbox_horizon (id, born) VALUES (1, 0) ON CONFLICT DO NOTHING;
