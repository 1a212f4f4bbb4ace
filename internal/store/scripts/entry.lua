-- Pauses or resumes a cron entry, or forgets one that no scheduler has any more. An enqueue looks at the pause in the step that
-- would take the tick.
--
-- KEYS: as named below
-- ARGV: protocol: the newest layout that the caller knows; entry: its name; verb: 'pause', 'resume' or 'forget'; patience (us): a scheduler that hasn't said
--       for so long that it has the entry has it no more
-- Reply: {'ok', changed}
--        changed: 1 if something was changed, else 0
--        {'unknown'}  no scheduler has described the entry; resume says so only if the entry isn't paused
--        {'lives'}  a scheduler has the entry, or a tick of it has come within patience. So it can't be forgotten
-- Errors: those of Redis, and 'LAYOUT n signalbox: ...' as in enqueue.lua, but only if the layout is older; before the first write.

local STATS, CRON, ENTRIES, SETTINGS = unpack(KEYS)
local protocol, entry, verb, patience = unpack(ARGV)

local withheld = read_settings(SETTINGS, STATS, protocol)
if (tonumber(withheld) or 999) < tonumber(protocol) then
  return other_layout(withheld, protocol)
end
local last, plans = unpack(redis.call('HMGET', CRON, entry, 'plan ' .. entry))
local known, seen, quiet = unpack(redis.call('HMGET', ENTRIES, 'spec:' .. entry, 'seen:' .. entry, 'quiet:' .. entry))
local paused = redis.call('HGET', SETTINGS, 'cron:' .. entry)
local now = clock()
if not known and not (paused and verb ~= 'pause') then
  return {'unknown'}
end
if verb == 'forget' then
  -- A scheduler that can't describe its entries still enqueues their ticks. Without the last one, another scheduler would enqueue it again.
  local _, lives = holder_of(seen, now, tonumber(patience))
  if known and lives or tonumber(last) and math.abs(now - tonumber(last)) <= tonumber(patience) then
    return {'lives'}
  end
  redis.call('HDEL', ENTRIES, 'spec:' .. entry, 'job:' .. entry, 'seen:' .. entry, 'quiet:' .. entry)
  redis.call('HDEL', SETTINGS, 'cron:' .. entry)
  redis.call('HDEL', CRON, entry, 'plan ' .. entry, 'jobs ' .. entry)
  return {'ok', 1}
end
if (verb == 'pause') == (paused and true or false) then
  return {'ok', 0}
end
-- While an entry is paused its ticks pass without a job, and become its last tick. So the field 'quiet:' says which ticks had no job:
-- those behind the first number, up to the second. There is no second number while the entry is paused.
local from, to = string.match(quiet or '', '^(%d*) (%d*)$')
redis.call('HDEL', SETTINGS, '') -- when Redis is out of memory it still permits this write, and then all that follows
if verb == 'pause' then
  if not (last and to and tonumber(to) and tonumber(last) and tonumber(last) <= tonumber(to)) then
    from = last or '' -- its job was enqueued
  end
  redis.call('HSET', ENTRIES, 'quiet:' .. entry, from .. ' ')
  redis.call('HSET', SETTINGS, 'cron:' .. entry, digits(now))
else
  redis.call('HDEL', SETTINGS, 'cron:' .. entry)
  if plans then -- ticks from before the end of the pause are never made up for, also if no scheduler saw them pass
    redis.call('HSET', CRON, 'plan ' .. entry, (string.gsub(plans, '^(%x+) %d+', '%1 ' .. digits(now))))
  end
  if last and last ~= from then
    redis.call('HSET', ENTRIES, 'quiet:' .. entry, (from or '') .. ' ' .. last)
  else
    redis.call('HDEL', ENTRIES, 'quiet:' .. entry)
  end
end
return {'ok', 1}
