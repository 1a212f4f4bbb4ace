-- Frees a lock that its holder still has, and notifies those that wait.
--
-- $1 key, $2 the holder's value, $3 channel, $4 payload
--
-- Row    whether it was freed, by this call or an earlier one; whether the value is the last one granted; how many
--        notifications were sent
WITH freed AS (
    UPDATE {table} SET until = 'epoch'
    WHERE key = $1::bytea AND holder = $2::text AND until > clock_timestamp()
    RETURNING wanted
), told AS MATERIALIZED (
    SELECT pg_notify($3::text, $4::text) FROM freed WHERE wanted
), before AS (
    SELECT holder = $2::text AS same, until FROM {table} WHERE key = $1::bytea
)
SELECT EXISTS (SELECT FROM freed) OR EXISTS (SELECT FROM before WHERE same AND until = 'epoch'),
       coalesce((SELECT same FROM before), true),
       (SELECT count(*) FROM told)
