-- include: digits

-- Adds n to a counter and returns the sum. If the counter holds no number, or one that is too large, it starts again from n: an error
-- must not stop a script between its writes. After any other error the counter is unchanged.
local function count(stats, field, n)
  local sum = redis.pcall('HINCRBY', stats, field, digits(n)) -- digits is faster than what Redis makes of a number
  if type(sum) == 'number' then
    return sum
  elseif string.find(sum.err, 'integer') or string.find(sum.err, 'overflow') then
    redis.call('HSET', stats, field, n)
    return n
  end
  return 0
end
