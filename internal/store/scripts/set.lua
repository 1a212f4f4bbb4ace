-- Changes a field of the queue's settings, and makes all workers of the queue read the settings.
--
-- KEYS, ARGV: as named below
--       value: '' removes the field; 'now' sets it to the time in us, but only if the field isn't set
--       channel: the queue's control channel
-- Reply: 1 if the field was changed, else 0
-- Errors: those of Redis, before the first write.

local SETTINGS = unpack(KEYS)
local field, value, channel = unpack(ARGV)

-- include: clock, digits, send

local before = redis.call('HGET', SETTINGS, field)
-- When Redis is out of memory it still permits this write, and then all that follows.
redis.call('HDEL', SETTINGS, '')
local changed = value ~= (before or '') and not (value == 'now' and before)
if value == '' then
  redis.call('HDEL', SETTINGS, field)
elseif changed then
  redis.call('HSET', SETTINGS, field, value == 'now' and digits(clock()) or value)
end
send('p' .. channel, 'look') -- also if nothing has changed: a worker may have missed that it did
return changed and 1 or 0
