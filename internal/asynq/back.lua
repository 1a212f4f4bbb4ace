-- Puts a staged task of a queue of asynq back to where it was.
--
-- KEYS: staging, the task's hash while it is staged, its hash, its place
-- ARGV: name, id
-- Reply: 'done'; 'gone', if the name isn't staged; 'taken', if asynq has another task of the ID by now

local STAGING, STAGED, TASK, PLACE = unpack(KEYS)
local name, id = unpack(ARGV)

local entry = redis.call('HGET', STAGING, name)
if not entry then
  return 'gone'
end
local state, score = string.match(entry, '^(%S+) (%S+)')
if redis.call('EXISTS', TASK) == 1 then
  return 'taken'
end
redis.call('RENAME', STAGED, TASK)
if state == 'pending' then
  redis.call('RPUSH', PLACE, id) -- it is the next one
else
  redis.call('ZADD', PLACE, score, id)
end
redis.call('HDEL', STAGING, name)
return 'done'
