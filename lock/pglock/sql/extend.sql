-- Moves the end of a lock that its holder still has.
--
-- $1 key, $2 the holder's value, $3 TTL in us
--
-- Row    whether it was extended, whether the value is the last one granted
WITH extended AS (
    UPDATE {table} SET until = greatest(until, clock_timestamp() + $3::bigint * interval '1 microsecond')
    WHERE key = $1::bytea AND holder = $2::text AND until > clock_timestamp()
    RETURNING key
)
SELECT EXISTS (SELECT FROM extended), coalesce((SELECT holder = $2::text FROM {table} WHERE key = $1::bytea), true)
