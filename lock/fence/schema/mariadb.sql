-- The tables of Signalbox' guards, version 1, for MariaDB. Names are bytes: a text would take Order-1 for order-1.

-- The largest token that has entered, for each resource. Rows are never deleted.
CREATE TABLE IF NOT EXISTS signalbox_fence (
    name   VARBINARY(1024) NOT NULL PRIMARY KEY,
    issuer VARBINARY(64)   NOT NULL,
    holder VARBINARY(255)  NOT NULL,
    token  BIGINT          NOT NULL
) ENGINE=InnoDB;

-- The effects that were had. born is in microseconds since 1970.
CREATE TABLE IF NOT EXISTS signalbox_once (
    namespace VARBINARY(255) NOT NULL,
    effect    VARBINARY(640) NOT NULL,
    step      VARBINARY(128) NOT NULL,
    born      BIGINT         NOT NULL,
    token     BIGINT         NOT NULL,
    result    MEDIUMBLOB,
    PRIMARY KEY (namespace, effect, step),
    KEY signalbox_once_born (born)
) ENGINE=InnoDB;

-- Effects that were born before this may have been forgotten. One row.
CREATE TABLE IF NOT EXISTS signalbox_horizon (
    id   SMALLINT NOT NULL PRIMARY KEY,
    born BIGINT   NOT NULL
) ENGINE=InnoDB;
INSERT IGNORE INTO signalbox_horizon (id, born) VALUES (1, 0);
