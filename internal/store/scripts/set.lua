-- Changes a field of the queue's settings, and makes all workers of the queue read the settings.
--
-- KEYS, ARGV: as named below
--       value: '' removes the field; 'now' sets it to the time in us, but only if the field isn't set; 'stop' sets it to 'stop ' and the
--       time, unless it is such a text already; 'loud' removes it, unless it is such a text
--       seed: '1' to set it only if the field isn't set
--       channel: the queue's control channel
-- Reply: 1 if the field was changed; 2 if value is 'loud' and the field stays, since it is a stop; else 0
-- Errors: those of Redis, and 'LAYOUT n signalbox: ...' as in enqueue.lua, but only if the layout is older; before the first write.

local STATS, SETTINGS = unpack(KEYS)
local protocol, field, value, seed, channel = unpack(ARGV)

local held_back, _, _, begins = standing(SETTINGS, STATS, protocol)
if (tonumber(held_back) or 999) < tonumber(protocol) then
  return other_layout(held_back, protocol)
end

local before = redis.call('HGET', SETTINGS, field) or ''
local stopping = string.sub(before, 1, 4) == 'stop'
local after = value
if value == 'now' then
  after = before ~= '' and before or digits(clock())
elseif value == 'stop' then
  after = stopping and before or 'stop ' .. digits(clock())
elseif value == 'loud' then
  after = stopping and before or ''
elseif seed == '1' and before ~= '' then
  after = before
end
-- When Redis is out of memory it still permits this write, and then all that follows.
redis.call('HDEL', SETTINGS, '')
if after == '' then
  redis.call('HDEL', SETTINGS, field)
elseif after ~= before then
  begin(SETTINGS, STATS, begins)
  redis.call('HSET', SETTINGS, field, after)
end
if after ~= before or seed ~= '1' then
  send('p' .. channel, 'look') -- also if nothing has changed: a worker may have missed that it did
end
return after ~= before and 1 or value == 'loud' and stopping and 2 or 0
