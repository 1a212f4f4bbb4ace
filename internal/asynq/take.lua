-- Takes tasks out of one place of a queue of asynq. What is staged is neither run nor seen by asynq.
--
-- KEYS: staging, a hash; place, the list pending or one of the sets scheduled, retry, archived; then for each task its hash and the key to which that is renamed
-- ARGV: state, as asynq names it; to, the namespace and the queue to which the tasks go, with a colon between; near and far, of pending tasks: about how far from the tail
--       the first and the last of them stand, from 1; then for each task id, name, digest
--       digest: the SHA-1 of the message that was read
-- Reply: a list with 1 for each task that was taken, and 0 for each that has another state or message, or isn't there

local STAGING, PLACE = unpack(KEYS, 1, 2)
local fixed = 4 -- arguments before those of the tasks
local state, to, near, far = unpack(ARGV, 1, fixed)

-- Servers take tasks from the tail meanwhile, so that others stand nearer to it. Tasks that are given back stand there again.
local nearer, farther = 500, 100

-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('HDEL', STAGING, '')

local places = {} -- of pending tasks: their indexes in the list, from its tail
if state == 'pending' then
  local last = math.max(tonumber(near) - nearer, 1)
  local ids = redis.call('LRANGE', PLACE, -(tonumber(far) + farther), -last)
  for i, id in ipairs(ids) do
    places[id] = -(last + #ids - i)
  end
end

-- Takes a task out of its place. A pending one is only marked if its index is known: to find each in a long list takes long.
local mark = 'signalbox ' .. ARGV[fixed + 2] -- no task has this ID
local marked = 0
local function take_out(id)
  if state ~= 'pending' then
    local score = redis.call('ZSCORE', PLACE, id)
    return redis.call('ZREM', PLACE, id), score
  end
  if not places[id] then
    return redis.call('LREM', PLACE, -1, id), '0'
  end
  redis.call('LSET', PLACE, places[id], mark)
  marked = marked + 1
  return 1, '0'
end

local taken = {}
local function take(i)
  local id, name, digest = unpack(ARGV, fixed + 3 * i - 2, fixed + 3 * i)
  local task, staged = unpack(KEYS, 2 * i + 1, 2 * i + 2)
  local found, out, score = redis.call('HMGET', task, 'msg', 'state'), 0, nil
  if found[1] and found[2] == state and redis.sha1hex(found[1]) == digest then
    out, score = take_out(id)
  end
  if out == 1 then
    redis.call('RENAME', task, staged)
    redis.call('HSET', STAGING, name, state .. ' ' .. score .. ' ' .. to .. ' ' .. id)
  end
  taken[i] = out
end

-- First those whose indexes are known: the others' removal changes these.
local tasks = math.floor((#ARGV - fixed) / 3)
for i = 1, tasks do
  if places[ARGV[fixed + 3 * i - 2]] then
    take(i)
  end
end
if marked > 0 then
  redis.call('LREM', PLACE, -marked, mark)
end
places = {}
for i = 1, tasks do
  if not taken[i] then
    take(i)
  end
end
return taken
