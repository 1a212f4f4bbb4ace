-- Returns how many jobs count for the queue's maximum: all that haven't ended.
local function queue_length()
  return redis.call('HLEN', JOBS) - redis.call('ZCARD', DEAD) - redis.call('ZCARD', CANCELLED) - redis.call('ZCARD', COMPLETED)
end
