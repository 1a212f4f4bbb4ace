-- $1 key
-- Row    token, owner, since, how long it is held in us; 0 or less if it is free
SELECT token, owner, since, (extract(epoch FROM until - clock_timestamp()) * 1000000)::bigint
FROM {table} WHERE key = $1::bytea
