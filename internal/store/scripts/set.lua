-- Changes a field of the queue's settings, and has all workers of the queue look at them.
--
-- KEYS, ARGV: as named below
--       value: '' to remove the field, 'now' for the time in us, where the field stays as it is if it is there;
--       channel: the queue's control channel
-- Reply: 1, or 0 if that was so before
-- Errors: those of Redis, before the first write.

local SETTINGS = unpack(KEYS)
local field, value, channel = unpack(ARGV)

-- include: clock, digits, send

local before = redis.call('HGET', SETTINGS, field)
-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('HDEL', SETTINGS, '')
local changed = value ~= (before or '') and not (value == 'now' and before)
if value == '' then
  redis.call('HDEL', SETTINGS, field)
elseif changed then
  redis.call('HSET', SETTINGS, field, value == 'now' and digits(clock()) or value)
end
send('p' .. channel, 'look') -- also if nothing has changed: a worker may have missed that it did
return changed and 1 or 0
