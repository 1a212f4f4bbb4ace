-- Takes tasks out of one place of a queue of asynq. What is staged is neither run nor seen by asynq.
--
-- KEYS: staging, a hash; place, the list pending or one of the sets scheduled, retry, archived; then for each task its hash and the key to which that is renamed
-- ARGV: state, as asynq names it; to, the namespace and the queue to which the tasks go, with a colon between; then for each task id, name, digest
--       digest: the SHA-1 of the message that was read
-- Reply: a list with 1 for each task that was taken, and 0 for each that has another state or message, or isn't there

local STAGING, PLACE = unpack(KEYS, 1, 2)
local state, to = unpack(ARGV, 1, 2)

local taken = {}
for i = 1, math.floor((#ARGV - 2) / 3) do
  local id, name, digest = unpack(ARGV, 3 * i, 3 * i + 2)
  local task, staged = unpack(KEYS, 2 * i + 1, 2 * i + 2)
  local found = redis.call('HMGET', task, 'msg', 'state')
  local out, score = 0, '0'
  if found[1] and found[2] == state and redis.sha1hex(found[1]) == digest then
    if state == 'pending' then
      out = redis.call('LREM', PLACE, -1, id)
    else
      score = redis.call('ZSCORE', PLACE, id) or '0'
      out = redis.call('ZREM', PLACE, id)
    end
  end
  if out == 1 then
    redis.call('RENAME', task, staged)
    redis.call('HSET', STAGING, name, state .. ' ' .. score .. ' ' .. to .. ' ' .. id)
  end
  taken[i] = out
end
return taken
