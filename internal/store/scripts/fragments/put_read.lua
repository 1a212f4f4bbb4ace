-- A step of put.lua: reads each key before the first write, so that one of the wrong type changes nothing.
local now = clock()
local lists = {['0'] = HIGH, ['1'] = NORMAL, ['2'] = LOW, ['s'] = SUSPECT}
for _, list in pairs(lists) do
  redis.call('LLEN', list)
end
local terminal
-- include: terminal_states
for _, state in pairs(terminal) do
  redis.call('ZCARD', state.set)
end
redis.call('HLEN', JOBS)
redis.call('ZCARD', DUE)
redis.call('ZCARD', IDLE)
redis.call('ZCARD', SESSIONS)
redis.call('ZCARD', LINED)
redis.call('ZCARD', TURNS)
redis.call('HLEN', GROUPS)
redis.call('HLEN', UNIQUE)
redis.call('ZCARD', WINDOWS)
redis.call('ZCARD', EXPIRES)
redis.call('ZCARD', RECEIPTS)
local largest = tonumber((string.match(redis.call('HGET', STATS, 'largest') or '', '^%d+$')))
local noted = redis.call('HLEN', NOTES) > 0
local limits = retention(SETTINGS, {tonumber(keep_jobs), tonumber(keep_bytes), tonumber(keep_us)})
-- A user who lacks one of these rights would lose jobs between two places.
local denied = redis.acl_check_cmd and denied_command({
  {'ZREM', SESSIONS, ''}, {'HGET', JOBS, ''}, {'HSET', JOBS, '', ''}, {'HDEL', JOBS, ''}, {'HSTRLEN', JOBS, ''}, {'ZSCORE', DUE, ''},
  {'ZADD', DUE, '0', ''}, {'ZREM', DUE, ''}, {'ZRANGE', DUE, '0', '0'}, {'HINCRBY', STATS, '', '1'}, {'RPUSH', HIGH, ''},
  {'ZADD', DEAD, '0', ''}, {'ZADD', CANCELLED, '0', ''}, {'HDEL', NOTES, ''},
})
if denied then
  return redis.error_reply('NOPERM signalbox: the Redis user may not run ' .. denied .. ', which putting jobs in needs')
end
local adds, woken, grown = false, false, 0
for i = fixed + 1, #ARGV, 6 do
  local _, digest = unpack(ARGV, i, i + 1)
  adds = adds or digest == ''
end
if not adds and dry ~= '1' then
  -- When Redis is out of memory it still permits this, and with it all that follows.
  redis.call('ZREM', SESSIONS, '')
end
