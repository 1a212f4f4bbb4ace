-- Keeps the jobs of one group from starting until it is resumed, or ends that.
--
-- KEYS, ARGV: as named below
--       protocol: the newest layout that the caller knows
--       group: key of the group; pause: '1' to pause it, '0' to resume it
--       channel: the queue's control channel
-- Reply: {'ok', changed}
--        changed: 1 if it wasn't so already, else 0
-- Errors: those of Redis, and 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local JOBS, DUE, IDLE, STATS, SETTINGS, LINED, TURNS, GROUPS, LIMITS = unpack(KEYS)
local protocol, group, pause, channel = unpack(ARGV)

local withheld, _, _, begins = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
check_keys()
local now = clock()
local before = redis.call('HGET', LIMITS, 'p' .. group)
local at, id = string.match(before or '', '^%d* (%d+) (.+)$') -- of the job that waits for this, as it holds its group: see await_resume
local record = id and redis.call('HGET', JOBS, id)

-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('HDEL', SETTINGS, '')
if pause == '1' then
  if not before then
    begin(SETTINGS, STATS, begins)
    redis.call('HSET', LIMITS, 'p' .. group, digits(now))
  end
  return {'ok', before and 0 or 1}
end
redis.call('HDEL', LIMITS, 'p' .. group)
local member = record and group_of(record) == group and class_of(record) .. id
local due = member and tonumber(redis.call('ZSCORE', DUE, member) or nil)
if due and due == tonumber(at) and due > now then
  redis.call('HSET', JOBS, id, redue(record, now))
  redis.call('ZADD', DUE, digits(now), member)
end
local g, turns = lines_of_groups(), {}
g.load({group})
for class = 0, 2 do
  if g.state(group, class) == 'b' and g.room(group) > 0 then
    g.turn(group, tostring(class), turns)
  end
end
if #turns > 0 then
  redis.call('ZADD', TURNS, unpack(turns))
end
g.save()
send('p' .. channel, 'look')
if withheld == '' and (due or #turns > 0) then
  wake_one(IDLE)
end
return {'ok', before and 1 or 0}
