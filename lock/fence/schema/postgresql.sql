-- The tables of Signalbox' guards, version 1, for PostgreSQL.

-- The largest token that has entered, for each resource. Rows are never deleted.
CREATE TABLE IF NOT EXISTS signalbox_fence (
    name   text   COLLATE "C" NOT NULL PRIMARY KEY,
    issuer text   COLLATE "C" NOT NULL,
    holder text   COLLATE "C" NOT NULL,
    token  bigint NOT NULL
);

-- The effects that were had. born is in microseconds since 1970.
CREATE TABLE IF NOT EXISTS signalbox_once (
    namespace text   COLLATE "C" NOT NULL,
    effect    text   COLLATE "C" NOT NULL,
    step      text   COLLATE "C" NOT NULL,
    born      bigint NOT NULL,
    token     bigint NOT NULL,
    result    bytea,
    PRIMARY KEY (namespace, effect, step)
);
CREATE INDEX IF NOT EXISTS signalbox_once_born ON signalbox_once (born);

-- Effects that were born before this may have been forgotten. One row.
CREATE TABLE IF NOT EXISTS signalbox_horizon (
    id   smallint NOT NULL PRIMARY KEY CHECK (id = 1),
    born bigint   NOT NULL
);
INSERT INTO signalbox_horizon (id, born) VALUES (1, 0) ON CONFLICT DO NOTHING;
