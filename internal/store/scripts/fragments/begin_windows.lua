-- include: drop_windows

-- A step of claim.lua: the windows of throttled jobs begin, now that a worker gets these for the first time. A job that has no key has begun before.
local values, ends = {}, {}
for _, one in ipairs(u.throttled) do
  local key, id, window = unpack(one)
  if redis.call('HGET', UNIQUE, key) == 't ' .. id then
    local till = digits(now + window)
    values[#values + 1], values[#values + 2] = key, till .. ' ' .. id
    ends[#ends + 1], ends[#ends + 2] = till, key
  end
end
if #values > 0 then
  redis.call('HSET', UNIQUE, unpack(values))
  redis.call('ZADD', WINDOWS, unpack(ends))
  drop_windows(now, 10 + #ends)
end
