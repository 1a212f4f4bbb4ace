-- The tables of package outbox, for PostgreSQL 12 or later. Times are microseconds since the Unix epoch.

-- The rows: one for each job. Its place in the order is pos.
CREATE TABLE IF NOT EXISTS signalbox_outbox (
  pos      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  batch    bigint NOT NULL DEFAULT 0,  -- 0: it waits
  shard    text COLLATE "C" NOT NULL,  -- namespace:queue/number
  id       text COLLATE "C" NOT NULL,
  class    bytea NOT NULL,
  due      bigint NOT NULL,            -- 0: at once
  born     bigint NOT NULL,
  envelope bytea NOT NULL
);
CREATE INDEX IF NOT EXISTS signalbox_outbox_next ON signalbox_outbox (batch, shard, pos);

-- For each shard: the last batch, the last one that Redis has, the last one that was purged, and how many rows a batch may have.
CREATE TABLE IF NOT EXISTS signalbox_outbox_shard (
  shard       text COLLATE "C" PRIMARY KEY,
  seq         bigint NOT NULL DEFAULT 0,
  lane_seq    bigint NOT NULL DEFAULT 0,
  lane_nonce  text NOT NULL DEFAULT '',
  floor_seq   bigint NOT NULL DEFAULT 0,
  floor_nonce text NOT NULL DEFAULT '',
  most        bigint NOT NULL DEFAULT 500
);

-- The batches that are on their way, and those that were sent lately.
CREATE TABLE IF NOT EXISTS signalbox_outbox_batch (
  shard text COLLATE "C" NOT NULL,
  seq   bigint NOT NULL,
  nonce text NOT NULL,
  sent  bigint NOT NULL DEFAULT 0,  -- when; 0: it isn't known to be in Redis
  again bigint NOT NULL DEFAULT 0,  -- 1: Redis has lost it
  void  bigint NOT NULL DEFAULT 0,  -- 1: it is to become void
  tries bigint NOT NULL DEFAULT 0,
  until bigint NOT NULL DEFAULT 0,  -- when another relay may send it
  PRIMARY KEY (shard, seq)
);
CREATE INDEX IF NOT EXISTS signalbox_outbox_unsent ON signalbox_outbox_batch (shard) WHERE sent = 0;

-- Transactions that enqueue jobs of one group in order wait for each other here. Groups share the rows.
CREATE TABLE IF NOT EXISTS signalbox_outbox_order (
  slot bigint PRIMARY KEY,
  n    bigint NOT NULL
);

-- Rows that can't be enqueued, and why.
CREATE TABLE IF NOT EXISTS signalbox_outbox_dead (
  pos      bigint PRIMARY KEY,
  shard    text COLLATE "C" NOT NULL,
  id       text COLLATE "C" NOT NULL,
  class    bytea NOT NULL,
  due      bigint NOT NULL,
  born     bigint NOT NULL,
  envelope bytea NOT NULL,
  reason   text NOT NULL,
  died     bigint NOT NULL
);

-- One row: the name of this outbox in Redis, and the version of the tables.
CREATE TABLE IF NOT EXISTS signalbox_outbox_box (
  one     bigint PRIMARY KEY CHECK (one = 1),
  id      text NOT NULL,
  version bigint NOT NULL
);
INSERT INTO signalbox_outbox_box (one, id, version) VALUES (1, md5(random()::text || clock_timestamp()::text), 1) ON CONFLICT DO NOTHING;
