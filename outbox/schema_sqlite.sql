-- The tables of package outbox, for SQLite 3.35 or later. Times are microseconds since the Unix epoch.

-- The rows: one for each job. Its place in the order is pos.
CREATE TABLE IF NOT EXISTS signalbox_outbox (
  pos      integer PRIMARY KEY AUTOINCREMENT,
  batch    integer NOT NULL DEFAULT 0,  -- 0: it waits
  shard    text NOT NULL,  -- namespace:queue/number
  id       text NOT NULL,
  class    blob NOT NULL,
  due      integer NOT NULL,            -- 0: at once
  born     integer NOT NULL,
  envelope blob NOT NULL
);
CREATE INDEX IF NOT EXISTS signalbox_outbox_next ON signalbox_outbox (batch, shard, pos);

-- For each shard: the last batch, the last one that Redis has, the last one that was purged, and how many rows a batch may have.
CREATE TABLE IF NOT EXISTS signalbox_outbox_shard (
  shard       text PRIMARY KEY,
  seq         integer NOT NULL DEFAULT 0,
  lane_seq    integer NOT NULL DEFAULT 0,
  lane_nonce  text NOT NULL DEFAULT '',
  floor_seq   integer NOT NULL DEFAULT 0,
  floor_nonce text NOT NULL DEFAULT '',
  most        integer NOT NULL DEFAULT 500
);

-- The batches that are on their way, and those that were sent lately.
CREATE TABLE IF NOT EXISTS signalbox_outbox_batch (
  shard text NOT NULL,
  seq   integer NOT NULL,
  nonce text NOT NULL,
  sent  integer NOT NULL DEFAULT 0,  -- when; 0: it isn't known to be in Redis
  again integer NOT NULL DEFAULT 0,  -- 1: Redis has lost it
  void  integer NOT NULL DEFAULT 0,  -- 1: it is to become void
  tries integer NOT NULL DEFAULT 0,
  until integer NOT NULL DEFAULT 0,  -- when another relay may send it
  PRIMARY KEY (shard, seq)
);
CREATE INDEX IF NOT EXISTS signalbox_outbox_unsent ON signalbox_outbox_batch (shard) WHERE sent = 0;

-- Transactions that enqueue jobs of one group in order wait for each other here. Groups share the rows.
CREATE TABLE IF NOT EXISTS signalbox_outbox_order (
  slot integer PRIMARY KEY,
  n    integer NOT NULL
);

-- Rows that can't be enqueued, and why.
CREATE TABLE IF NOT EXISTS signalbox_outbox_dead (
  pos      integer PRIMARY KEY,
  shard    text NOT NULL,
  id       text NOT NULL,
  class    blob NOT NULL,
  due      integer NOT NULL,
  born     integer NOT NULL,
  envelope blob NOT NULL,
  reason   text NOT NULL,
  died     integer NOT NULL
);

-- One row: the name of this outbox in Redis, and the version of the tables.
CREATE TABLE IF NOT EXISTS signalbox_outbox_box (
  one     integer PRIMARY KEY CHECK (one = 1),
  id      text NOT NULL,
  version integer NOT NULL
);
INSERT INTO signalbox_outbox_box (one, id, version) VALUES (1, lower(hex(randomblob(16))), 1) ON CONFLICT DO NOTHING;
