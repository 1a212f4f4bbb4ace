-- Adds to a counter and returns the sum. A counter that holds no number, or too large a one, begins
-- anew: it must not stop a script between its writes. Any other failure leaves it as it is.
local function count(stats, field, n)
  local sum = redis.pcall('HINCRBY', stats, field, n)
  if type(sum) == 'number' then
    return sum
  elseif string.find(sum.err, 'integer') or string.find(sum.err, 'overflow') then
    redis.call('HSET', stats, field, n)
    return n
  end
  return 0
end
