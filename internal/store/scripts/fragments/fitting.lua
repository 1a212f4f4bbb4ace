-- A step of claim.lua: lowers n to how many of the first n ids of a list have records that there is room for.
for i, id in ipairs(redis.call('LRANGE', list, 0, n - 1)) do
  local size = redis.call('HSTRLEN', JOBS, id)
  if size > room and #popped + i > 1 then
    full = true
    n = i - 1
    break
  end
  room = room - size
end
