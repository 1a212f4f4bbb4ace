-- Takes the lock of a key if it is free. Run again with the same holder it gives the same answer, or refuses: a holder
-- is granted once.
--
-- $1 key, $2 the attempt's random value, $3 owner, $4 TTL in us, $5 whether the caller waits: then the release notifies
--
-- Row    token, whether it was granted to this value, how long it is held in us
-- No row means that another created the row at this moment.
--
-- The clock is read once, before the row is locked. An older reading is safe: the lock seems held for longer, and the
-- client counts its validity from an even earlier moment.
WITH asked AS (
    INSERT INTO {table} AS l (key, token, holder, owner, since, until, wanted)
    SELECT $1::bytea, (extract(epoch FROM c.now) * 1000000)::bigint, $2::text, $3::text,
           c.now, c.now + $4::bigint * interval '1 microsecond', false
    FROM (SELECT clock_timestamp() AS now) c
    ON CONFLICT (key) DO UPDATE SET
        token  = CASE WHEN l.until <= excluded.since THEN greatest(l.token + 1, excluded.token) ELSE l.token END,
        holder = CASE WHEN l.until <= excluded.since THEN excluded.holder ELSE l.holder END,
        owner  = CASE WHEN l.until <= excluded.since THEN excluded.owner ELSE l.owner END,
        since  = CASE WHEN l.until <= excluded.since THEN excluded.since ELSE l.since END,
        until  = CASE WHEN l.until <= excluded.since THEN excluded.until ELSE l.until END,
        wanted = l.until > excluded.since AND (l.wanted OR $5::boolean AND l.holder <> excluded.holder)
    WHERE (l.until <= excluded.since AND l.holder <> excluded.holder)
       OR (l.until > excluded.since AND (l.holder = excluded.holder OR $5::boolean AND NOT l.wanted))
    RETURNING l.token, l.holder, l.until
)
SELECT a.token, a.holder = $2::text, (extract(epoch FROM a.until - clock_timestamp()) * 1000000)::bigint
FROM asked a
UNION ALL
SELECT l.token, false, (extract(epoch FROM l.until - clock_timestamp()) * 1000000)::bigint
FROM {table} l
WHERE l.key = $1::bytea AND NOT EXISTS (SELECT FROM asked)
