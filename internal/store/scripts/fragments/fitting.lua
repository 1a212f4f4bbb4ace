-- A step of claim.lua: lowers n to the number of first ids in a list whose records fit into the reply.
for i, id in ipairs(redis.call('LRANGE', list, 0, n - 1)) do
  local size = redis.call('HSTRLEN', JOBS, id)
  if size > room and #popped + i > 1 then
    full = true
    n = i - 1
    break
  end
  room = room - size
end
