-- include: group_of, class_of, redue

-- A step of claim.lua: jobs that hold their groups already, as they run again, count for the rates of those groups, too. One that a rate doesn't
-- allow yet is put off until it does. It holds its group on. None runs while its group is paused.
local owners, keys = {}, {}
for i = 1, #popped do
  if records[i] and not from[i] then
    owners[i] = group_of(records[i])
    keys[#keys + 1] = owners[i]
  end
end
if #keys > 0 then
  g.load(keys)
end
for i = 1, #popped do
  local paused = owners[i] and not busy[i] and g.of(owners[i]).paused
  if paused then
    -- include: await_resume
  end
  local pause = owners[i] and not busy[i] and not paused and g.again(owners[i], steady) or 0
  if pause > 0 then
    redis.call('HSET', JOBS, popped[i], redue(records[i], now + pause))
    redis.call('ZADD', DUE, digits(now + pause), class_of(records[i]) .. popped[i])
    records[i] = false
  end
end
