-- Changes a field of the queue's settings, and makes all workers of the queue read the settings.
--
-- KEYS, ARGV: as named below
--       protocol: the newest layout that the caller knows
--       field: of SETTINGS
--       value: '' removes the field; 'now' sets it to the time in us, but only if the field isn't set; 'stop' sets it to 'stop ' and the
--       time, unless it is such a text already; 'loud' removes it, unless it is such a text
--       verb: what is done with what is remembered of the setting: see decide. '' for a field of which nothing is remembered
--       by: 'worker' or 'operator', a space and a name
--       bounds: '1' if the field bounds what runs or how many jobs there are. A worker that tells its value changes nothing here: it calls limit.lua
--       channel: the queue's control channel
-- Reply: {1 if the field was changed; 2 if value is 'loud' and the field stays, since it is a stop; 3 if limit.lua is to be called; else 0}. With a verb the
--       first is followed by what told_reply returns behind it
-- Errors: those of Redis, and 'LAYOUT n signalbox: ...' as in enqueue.lua, but only if the layout is older; before the first write.

local STATS, SETTINGS = unpack(KEYS)
local protocol, field, value, verb, by, bounds, channel = unpack(ARGV)

local withheld, _, _, begins = read_settings(SETTINGS, STATS, protocol)
if (tonumber(withheld) or 999) < tonumber(protocol) then
  return other_layout(withheld, protocol)
end

local now = clock()
local before = redis.call('HGET', SETTINGS, field) or ''
local stopping = string.sub(before, 1, 4) == 'stop'
local after = value
local m, writes
if value == 'now' then
  after = before ~= '' and before or digits(now)
elseif value == 'stop' then
  after = stopping and before or 'stop ' .. digits(now)
elseif value == 'loud' then
  after = stopping and before or ''
elseif verb ~= '' then
  m = memory_of(redis.call('HGET', SETTINGS, 'of ' .. field))
  after, writes = decide(m, verb, value, by, now)
  after = after or before
  if bounds == '1' and after ~= before then
    return {3}
  end
end
-- When Redis is out of memory it still permits this write, and then all that follows.
redis.call('HDEL', SETTINGS, '')
if after == '' then
  redis.call('HDEL', SETTINGS, field)
elseif after ~= before then
  begin(SETTINGS, STATS, begins)
  redis.call('HSET', SETTINGS, field, after)
end
if writes then
  begin(SETTINGS, STATS, begins)
  redis.call('HSET', SETTINGS, 'of ' .. field, memory_text(m))
end
if after ~= before then
  log_change(by, field, before, after, now)
end
if after ~= before or verb ~= 'tell' then
  send('p' .. channel, 'look') -- also if nothing has changed: a worker may have missed that it did
end
if m then
  return told_reply(after, m, before)
end
return {after ~= before and 1 or value == 'loud' and stopping and 2 or 0}
