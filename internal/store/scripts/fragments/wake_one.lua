-- Leaves one wake-up marker for an idle worker, unless one is there already.
local function wake_one(key)
  if redis.call('LLEN', key) == 0 then
    redis.call('LPUSH', key, '1')
  end
end
