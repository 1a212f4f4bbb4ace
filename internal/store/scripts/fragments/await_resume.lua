-- A step of claim.lua: a job that holds its paused serial group comes to run again. It holds the group on, since the others are to wait for it. It is due again
-- after 10 minutes, and LIMITS has its id: resuming the group makes it due at once.
local id = popped[i]
if not seen[id] then
  seen[id] = true
  local at = now + 600000000
  redis.call('HSET', JOBS, id, redue(records[i], at))
  redis.call('ZADD', DUE, digits(at), class_of(records[i]) .. id)
  redis.call('HSET', LIMITS, 'p' .. key, string.match(s.paused, '^%d*') .. ' ' .. id)
end
records[i] = false
