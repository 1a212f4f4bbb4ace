-- A step of claim.lua: a job that holds its serial group comes to run again before the group's rate allows it. It holds the group on, since the others are to wait for
-- it. It is put off until the rate allows it. LIMITS has the time at which it is due, and its id. PARKED has the group until the same time, by the clock of limits.
local id, at = popped[i], digits(now + pause)
redis.call('HSET', JOBS, id, redue(records[i], now + pause))
redis.call('ZADD', DUE, at, class_of(records[i]) .. id)
redis.call('HSET', LIMITS, 'd' .. key, at .. ' ' .. id)
redis.call('ZADD', PARKED, digits(steady + pause), 'd' .. key)
