-- Notes that the queue has what programs of protocol 1 don't know: they get no jobs of it from now on.
local function raise_layout()
  if (tonumber(redis.call('HGET', SETTINGS, 'layout') or 1) or 999) < 2 then
    redis.call('HSET', SETTINGS, 'layout', '2')
  end
end
