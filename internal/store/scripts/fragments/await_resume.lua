-- include: line_of

-- A step of claim.lua: a job holds its paused group already, and comes to run again. It leaves the group and comes into its line. One of a serial
-- group holds it on, since the others are to wait for it. It is due again after 10 minutes, and LIMITS has its id: resuming the group makes it due at once.
local id, key = popped[i], owners[i]
if not seen[id] then
  seen[id] = true
  if string.byte(key) == 115 then
    local at = now + 600000000
    redis.call('HSET', JOBS, id, redue(records[i], at))
    redis.call('ZADD', DUE, digits(at), class_of(records[i]) .. id)
    redis.call('HSET', LIMITS, 'p' .. key, string.match(g.of(key).paused, '^%d*') .. ' ' .. id)
  else
    g.leave({key})
    g.join({line_of(records[i], key, id)})
  end
end
records[i] = false
