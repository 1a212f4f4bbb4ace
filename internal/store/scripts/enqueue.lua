-- Puts jobs in, each unless its id is there already; for a tick of a cron entry, only if
-- nobody enqueued that tick before.
--
-- KEYS: 1 lane, 2 jobs, 3 due, 4 wake, 5 stats, 6 cron,
--       7 ready:high, 8 ready:normal, 9 ready:low
-- ARGV: 1 sequence number of the call in its lane, 2 cron entry or '', 3 tick (us), 0 without an entry,
--       then for each job, at most 1000: id, class ('0' high, '1' normal, '2' low), when,
--       envelope
--       when: '' now, '+us' after that delay, '@us' at that time; digits
-- Reply: {'ok', time in us, outcomes}: a character a job, '1' new, '0' its id is there
--        {'stale'}  a later call of this lane was seen; nothing was done
--        {'early', time in us}  the tick is in the future by this server's clock
--        {'taken', time in us, ''}  the tick, or a later one, was enqueued before
-- Errors: those of Redis, and 'ERR signalbox: ...', before the first write.

local seq, entry, tick = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local now = clock()
if not seq or #ARGV < 7 or (#ARGV - 3) % 4 ~= 0 or (entry ~= '' and not tick) then
  return redis.error_reply('ERR signalbox: the arguments are not those of an enqueue')
end

local last = redis.call('GET', KEYS[1])
if last then
  local lseq, status, outcomes = string.match(last, '^(%d+) (%a+) (%d*)$')
  lseq = tonumber(lseq)
  if lseq and seq < lseq then
    return {'stale'}
  elseif seq == lseq then
    return {status, now, outcomes}
  end
end

local ids = {}
for i = 4, #ARGV, 4 do
  ids[#ids + 1] = ARGV[i]
end

-- Every key is read before the first write, so that one of the wrong type changes nothing.
local present = redis.call('HMGET', KEYS[2], unpack(ids))
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
redis.call('LLEN', KEYS[4])
redis.call('HLEN', KEYS[5])
for k = 7, 9 do
  redis.call('LLEN', KEYS[k])
end
if entry ~= '' then
  local done = redis.call('HGET', KEYS[6], entry)
  if tick > now then
    return {'early', now}
  elseif done and not tonumber(done) then
    return redis.error_reply('ERR signalbox: the last tick of this cron entry is no number: is another program writing to this queue?')
  elseif done and tonumber(done) >= tick then
    redis.call('SET', KEYS[1], digits(seq) .. ' taken ', 'PX', 3600000)
    return {'taken', now, ''}
  end
end

local at = stamp(now)
local outcomes, records, due, fresh = {}, {}, {}, 0
local ready = {['0'] = {}, ['1'] = {}, ['2'] = {}}
local seen = {}
for j = 1, #ids do
  local i = 4 * j
  local id, class, when = ids[j], ARGV[i + 1], ARGV[i + 2]
  local us = when == '' and now or tonumber(string.sub(when, 2))
  if id == '' or #id > 200 or not ready[class] or not us or us ~= us then
    return redis.error_reply('ERR signalbox: the id, the class or the time of job ' .. j .. ' is not valid')
  end
  if present[j] or seen[id] then
    outcomes[j] = '0'
  else
    seen[id] = true
    outcomes[j] = '1'
    fresh = fresh + 1
    local sched, later = at, false
    if when ~= '' then
      if string.sub(when, 1, 1) == '+' then
        us = now + math.max(us, 0)
      elseif entry == '' then
        us = math.max(us, now)
      end
      us = math.min(us, 9007199254740991) -- in the year 2255; a double holds no more
      sched, later = stamp(us), us > now
      if later then
        due[#due + 1] = digits(us)
        due[#due + 1] = class .. id
      end
    end
    records[#records + 1] = id
    records[#records + 1] = '\1' .. class .. '\0' .. at .. sched .. ARGV[i + 3]
    if not later then
      local list = ready[class]
      list[#list + 1] = id
    end
  end
end

local outcome = table.concat(outcomes)
if fresh > 0 then
  redis.call('HSET', KEYS[2], unpack(records))
  local woken = false
  for class, list in pairs(ready) do
    if #list > 0 then
      redis.call('RPUSH', KEYS[7 + class], unpack(list))
      woken = true
    end
  end
  if #due > 0 then
    redis.call('ZADD', KEYS[3], unpack(due))
    local head = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
    woken = woken or not first[2] or tonumber(head[2]) < tonumber(first[2])
  end
  if woken then
    wake_one(KEYS[4])
  end
  count(KEYS[5], 'enqueued', fresh)
end
local status = 'ok'
if entry ~= '' then
  redis.call('HSET', KEYS[6], entry, digits(tick))
  if fresh == 0 then
    status, outcome = 'taken', '' -- the job of this tick is there, though the tick's mark is not
  end
end
redis.call('SET', KEYS[1], digits(seq) .. ' ' .. status .. ' ' .. outcome, 'PX', 3600000)
return {status, now, outcome}
