-- A step of enqueue.lua. Every key is read before the first write, so that one of the wrong type changes nothing. Records
-- that may be large are not read only to see that they are there.
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
redis.call('ZCARD', IDLE)
local earliest = timed and redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local marks -- the last tick of each entry
if entries then
  marks = {}
  local found = redis.call('HMGET', CRON, unpack(entries))
  for i = 1, #entries do
    local mark = found[i] and tonumber(found[i])
    if found[i] and not mark then
      return invalid('the last tick of a cron entry is no number: is another program writing to this queue?')
    end
    marks[entries[i]] = mark or -1
  end
end
