-- Ends the staging of tasks of a queue of asynq. It does nothing for a name that isn't staged.
--
-- KEYS: staging; then for each task the key of its hash while it is staged, and its unique key or, if it has none, the first again
-- ARGV: for each task: name, id
-- Reply: how many were ended

local STAGING = KEYS[1]

local ended = 0
for i = 1, math.floor(#ARGV / 2) do
  local name, id = unpack(ARGV, 2 * i - 1, 2 * i)
  local staged, unique = unpack(KEYS, 2 * i, 2 * i + 1)
  if redis.call('HDEL', STAGING, name) == 1 then
    redis.call('DEL', staged)
    if unique ~= staged and redis.call('GET', unique) == id then
      redis.call('DEL', unique)
    end
    ended = ended + 1
  end
end
return ended
