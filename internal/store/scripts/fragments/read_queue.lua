-- A step of enqueue.lua: reads every key before the first write. So a key of the wrong type is an error before anything has changed.
-- Where records may be large, it checks that they exist without reading them.
local largest = tonumber((string.match(redis.call('HGET', STATS, 'largest') or '', '^%d+$')))
local present
if n > 1 and not (largest and largest <= 4096) then
  present = {}
  for j = 1, n do
    present[j] = redis.call('HEXISTS', JOBS, ids[j]) == 1
  end
else
  present = redis.call('HMGET', JOBS, unpack(ids))
end
local idlers = redis.call('ZRANGE', IDLE, '0', '1')
if lined then
  redis.call('ZCARD', LINED)
  redis.call('ZCARD', TURNS)
  redis.call('HLEN', GROUPS)
  redis.call('ZCARD', EXPIRES) -- such a job has a group
  place = tonumber((string.match(redis.call('HGET', STATS, 'place') or '', '^%d+$'))) or 0
end
if uniques then
  keys_held = {}
  redis.call('ZCARD', WINDOWS)
  local values = redis.call('HMGET', UNIQUE, unpack(uniques))
  for i = 1, #uniques do
    if values[i] then
      keys_held[uniques[i]] = values[i]
    end
  end
end
local earliest = timed and redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local marks, plans, paused -- of each entry: its last tick, the plan in force and since when, and since when it is paused
local jobs_of -- of each entry: its newest jobs, if overlaps is set
if entries then
  marks, plans, paused = {}, {}, {}
  local found = redis.call('HMGET', CRON, unpack(entries))
  local fields = {}
  for i = 1, #entries do
    fields[i] = 'plan ' .. entries[i]
  end
  local planned = redis.call('HMGET', CRON, unpack(fields))
  for i = 1, #entries do
    fields[i] = 'cron:' .. entries[i]
  end
  local pauses = redis.call('HMGET', SETTINGS, unpack(fields))
  for i = 1, #entries do
    paused[entries[i]] = pauses[i]
    local plan, since = string.match(planned[i] or '', '^(%x+) (%d+) ')
    plans[entries[i]] = {plan, tonumber(since)}
    local mark = found[i] and tonumber(found[i])
    if found[i] and not mark then
      return invalid('the last tick of a cron entry is no number: is another program writing to this queue?')
    end
    marks[entries[i]] = mark or -1
  end
  if overlaps then
    -- include: read_overlaps
  end
end
