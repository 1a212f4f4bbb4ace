-- Pauses the queue, or resumes it: while it is paused no job is claimed. Jobs that run go on, and are settled.
--
-- KEYS, ARGV: as named below
--       pause: '1' to pause, '0' to resume
-- Reply: 1, or 0 if that was so before
-- Errors: those of Redis, before the first write.

local WAKE, SETTINGS = unpack(KEYS)
local pause = unpack(ARGV)

-- include: clock, digits, wake_one

local paused = redis.call('HEXISTS', SETTINGS, 'paused') == 1
redis.call('LLEN', WAKE)
-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('HDEL', SETTINGS, '')
if pause == '1' then
  if not paused then
    redis.call('HSET', SETTINGS, 'paused', digits(clock()))
    return 1
  end
elseif paused then
  redis.call('HDEL', SETTINGS, 'paused')
  wake_one(WAKE) -- also if nothing seems to wait: a newer layout may keep jobs elsewhere
  return 1
end
return 0
