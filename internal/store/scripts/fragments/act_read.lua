-- A step of act.lua: reads each key before the first write, so that one of the wrong type changes nothing.
local now = clock()
due = tonumber(due) or now
local passed = {}
for k = first_session, #KEYS do
  passed[KEYS[k]] = true
  redis.call('HLEN', KEYS[k])
end
for _, session in ipairs(redis.call('ZRANGE', SESSIONS, 0, -1)) do
  if not passed[inflight .. session] then
    return {'again'}
  end
end
local lists = {['0'] = HIGH, ['1'] = NORMAL, ['2'] = LOW, ['s'] = SUSPECT}
for _, list in pairs(lists) do
  redis.call('LLEN', list)
end
redis.call('HLEN', JOBS)
redis.call('ZCARD', DUE)
redis.call('ZCARD', IDLE)
redis.call('ZCARD', DEAD)
redis.call('ZCARD', CANCELLED)
redis.call('ZCARD', COMPLETED)
redis.call('HLEN', CANCELS)
redis.call('ZCARD', LINED)
redis.call('ZCARD', TURNS)
redis.call('HLEN', GROUPS)
redis.call('HLEN', UNIQUE)
redis.call('ZCARD', WINDOWS)
redis.call('ZCARD', EXPIRES)
local largest = tonumber((string.match(redis.call('HGET', STATS, 'largest') or '', '^%d+$')))
local noted = redis.call('HLEN', NOTES) > 0
local limits = retention(SETTINGS, {tonumber(keep_jobs), tonumber(keep_bytes), tonumber(keep_us)})
-- A user who lacks one of these rights would lose jobs between two places.
local denied = redis.acl_check_cmd and denied_command({
  {'ZREM', SESSIONS, ''}, {'HGET', JOBS, ''}, {'HSET', JOBS, '', ''}, {'HDEL', JOBS, ''}, {'HSTRLEN', JOBS, ''}, {'ZSCORE', DUE, ''},
  {'ZADD', DUE, '0', ''}, {'ZRANGE', DUE, '0', '0'}, {'HINCRBY', STATS, '', '1'}, {'LPOS', HIGH, ''}, {'LREM', HIGH, '1', ''},
  {'RPUSH', HIGH, ''}, {'HSET', CANCELS, '', ''}, {'ZADD', CANCELLED, '0', ''}, {'ZREM', DEAD, ''}, {'HDEL', NOTES, ''},
})
if denied then
  return redis.error_reply('NOPERM signalbox: the Redis user may not run ' .. denied .. ', which acting on jobs needs')
end
