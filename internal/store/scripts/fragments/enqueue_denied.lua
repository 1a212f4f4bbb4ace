-- A step of enqueue.lua and relay.lua: checks that the user may run all commands.
-- include: denied_command
local denied = redis.acl_check_cmd and denied_command({
  {'RPUSH', HIGH, ''}, {'RPUSH', NORMAL, ''}, {'RPUSH', LOW, ''}, {'ZADD', DUE, '0', ''},
  {'HSET', JOBS, '', ''}, {'HSET', STATS, '', ''}, {'HSET', CRON, '', ''}, {'HINCRBY', STATS, '', '1'},
  {'LPUSH', HIGH, ''}, {'ZREM', IDLE, ''}, {'ZRANGE', IDLE, '0', '0'}, {'PUBLISH', IDLE, ''}, {'SPUBLISH', IDLE, ''},
  {'SET', LANE, ''}, {'ZREM', DEAD, ''}, {'ZREM', CANCELLED, ''}, {'ZREM', COMPLETED, ''}, {'HDEL', NOTES, ''},
  {'HMGET', JOBS, ''}, {'HMGET', CRON, ''}, {'HGET', STATS, ''}, {'HEXISTS', JOBS, ''}, {'HSTRLEN', JOBS, ''},
  {'HLEN', JOBS}, {'HLEN', NOTES}, {'ZCARD', DEAD}, {'LLEN', HIGH}, {'LLEN', NORMAL}, {'LLEN', LOW},
  {'HMGET', SETTINGS, ''}, {'EXISTS', SETTINGS}, {'TIME'}, {'ZRANGE', DUE, '0', '0'}, {'ZSCORE', DUE, ''}, {'ZSCORE', DEAD, ''}, {'ZSCORE', CANCELLED, ''}, {'ZSCORE', COMPLETED, ''}, {'ZMSCORE', DUE, ''},
})
if denied then
  return redis.error_reply('NOPERM signalbox: the Redis user may not run ' .. denied .. ', which an enqueue needs')
end
