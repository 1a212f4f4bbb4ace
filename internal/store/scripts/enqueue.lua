-- Puts jobs in. An ID names a live job: a job whose ID belongs to a live one is left out, and one
-- whose ID belongs to a dead or cancelled one takes its place. The job of a cron entry's tick goes
-- in only if nobody enqueued that tick, or a later one of the entry, before.
--
-- KEYS: as named below; HIGH, NORMAL and LOW are the lists ready:high, ready:normal, ready:low
-- ARGV: 1 protocol, ' ', sequence number of the call in its lane. A caller that knows this server's clock may add
--       ' ' and how far its own reckoning is ahead of it (us, '-' in front if it is behind): ticks go
--       by that reckoning then, and an entry's last tick more than 10 s ahead of it doesn't count.
--       Then for each job, 1 to 1000 of them: id, class ('0' high, '1' normal, '2' low; with a '!'
--       behind it the job never takes another's place; then '+', a byte of flags that isn't 0, and up to 1000
--       bytes of extras, if the job has any), when, envelope
--       when: '' now, '+us' after that delay, '@us' at that time, '=us entry' for the tick of
--       that cron entry at that time; us in decimal digits
-- Reply: {'ok', time in us, outcomes}, with a character for each job:
--          '1' new, 'D' new and in the place of a dead job, 'C' of a cancelled one,
--          'r' new, and the last tick of its entry was in the future and is replaced
--          left out, because the job of this ID is: '0' ready or running, 's' scheduled,
--          'd' dead, 'c' cancelled
--          left out, because its tick was: 't' enqueued before, 'e' in the future of this server,
--          'l' more than 5 s ago
--        {'stale'}  a later call of this lane was seen; nothing was done
-- Errors: those of Redis, and 'ERR signalbox: ...', 'NOPERM signalbox: ...', or 'LAYOUT n signalbox: ...' if the queue
--         has the layout n, newer than the protocol; before the first write.

local LANE, JOBS, DUE, WAKE, STATS, CRON, HIGH, NORMAL, LOW, DEAD, CANCELLED, SPANS, SETTINGS = unpack(KEYS)

-- include: clock, digits, stamp, standing, count, denied_command, wake_one

local function invalid(what)
  return redis.error_reply('ERR signalbox: ' .. what)
end

local n = (#ARGV - 1) / 4
local protocol, seq, skew = string.match(ARGV[1] or '', '^(%d+) (%d+) ?(.*)$')
local reckons = skew ~= ''
if n < 1 or n > 1000 or n ~= math.floor(n) or not seq or #seq > 15 or #protocol > 3 or (reckons and not string.find(skew, '^-?%d+$')) then
  return invalid('the arguments are not those of an enqueue of 1 to 1000 jobs')
end
seq = tonumber(seq)

local last = redis.pcall('GET', LANE)
if type(last) == 'table' then
  return last -- its error, which says that nothing was done
elseif last then
  local lseq, outcomes = string.match(last, '^(%d+) (%w*)$')
  lseq = tonumber(lseq)
  if lseq and seq < lseq then
    return {'stale'}
  elseif seq == lseq then
    return {'ok', clock(), outcomes}
  end
else
  -- A lane's first call makes sure that no command is denied to this user between two writes. Other
  -- servers than Redis may not offer the check.
  local denied = redis.acl_check_cmd and denied_command({
    {'RPUSH', HIGH, ''}, {'RPUSH', NORMAL, ''}, {'RPUSH', LOW, ''}, {'ZADD', DUE, '0', ''},
    {'HSET', JOBS, '', ''}, {'HSET', STATS, '', ''}, {'HSET', CRON, '', ''}, {'HINCRBY', STATS, '', '1'},
    {'LPUSH', WAKE, ''}, {'SET', LANE, ''}, {'ZREM', DEAD, ''}, {'ZREM', CANCELLED, ''}, {'HDEL', SPANS, ''},
    {'HMGET', JOBS, ''}, {'HMGET', CRON, ''}, {'HGET', STATS, ''}, {'HEXISTS', JOBS, ''}, {'HSTRLEN', JOBS, ''},
    {'HLEN', JOBS}, {'HLEN', SPANS}, {'LLEN', WAKE}, {'LLEN', HIGH}, {'LLEN', NORMAL}, {'LLEN', LOW},
    {'HMGET', SETTINGS, ''}, {'TIME'}, {'ZRANGE', DUE, '0', '0'}, {'ZSCORE', DUE, ''}, {'ZSCORE', DEAD, ''}, {'ZSCORE', CANCELLED, ''},
  })
  if denied then
    return redis.error_reply('NOPERM signalbox: the Redis user may not run ' .. denied .. ', which an enqueue needs')
  end
end

local held_back = standing(SETTINGS, protocol)
if held_back ~= '' and held_back ~= 'paused' then
  return redis.error_reply('LAYOUT ' .. held_back .. ' signalbox: the layout of the queue is newer than protocol ' .. protocol)
end

-- All arguments are checked first.
local now = clock()
local reckoned = now + (reckons and tonumber(skew) or 0)
local lists = {['0'] = HIGH, ['1'] = NORMAL, ['2'] = LOW}
local ready = {['0'] = {}, ['1'] = {}, ['2'] = {}}
local ids, classes, times, delays, ticks, cautious, extras = {}, {}, {}, {}, {}, {}, {}
local entries, timed = {}, false
for j = 1, n do
  local i = 4 * j - 2
  local id, class, when = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if not ready[class] then
    local mark, special
    class, mark, special = string.match(class, '^([012])(!?)(.*)$')
    cautious[j] = mark == '!'
    if class and special ~= '' then
      if #special < 2 or #special > 1002 or not string.find(special, '^%+[\1-\255]') then
        class = nil
      else
        extras[j] = special
      end
    end
  end
  if when ~= '' then
    timed = true
    local sign, us, entry = string.match(when, '^([+@=])(%d+)(.*)$')
    if sign == '=' then
      entry = string.match(entry, '^ ([!-z|~]+)$')
      if not entry or #entry > 200 then
        us = nil
      else
        ticks[j] = entry
        entries[#entries + 1] = entry
      end
    elseif entry ~= '' then
      us = nil
    end
    times[j], delays[j] = tonumber(us), sign == '+'
  end
  if id == '' or #id > 200 or not class or (when ~= '' and not times[j]) then
    return invalid('the id, the class or the time of job ' .. j .. ' is not valid')
  end
  ids[j], classes[j] = id, class
end
if not string.find(table.concat(ids), '^[!-z|~]+$') then
  return invalid('an id has other characters than printable ASCII without spaces and braces')
end

-- Every key is read before the first write, so that one of the wrong type changes nothing. Records
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
redis.call('LLEN', WAKE)
local first = timed and redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
local marks = {} -- the last tick of each entry
if #entries > 0 then
  local found = redis.call('HMGET', CRON, unpack(entries))
  for i = 1, #entries do
    local mark = found[i] and tonumber(found[i])
    if found[i] and not mark then
      return invalid('the last tick of a cron entry is no number: is another program writing to this queue?')
    end
    marks[entries[i]] = mark or -1
  end
end

-- What is known of the job with an id that is there.
local function state(id)
  if redis.call('ZSCORE', DEAD, id) then
    return 'd'
  elseif redis.call('ZSCORE', CANCELLED, id) then
    return 'c'
  end
  for _, class in ipairs({'0', '1', '2', 's'}) do
    if redis.call('ZSCORE', DUE, class .. id) then
      return 's'
    end
  end
  return '0'
end

-- What stands behind the header of a job with extras: '+', flags and the extras, of which the length and the
-- extras themselves stand before the envelope.
local function with_extras(special, envelope)
  local n = #special - 2
  return string.char(math.floor(n / 256), n % 256) .. string.sub(special, 3) .. envelope
end

local at = stamp(now)
local heads = {} -- of the records of jobs that are ready now
local outcomes, records, due, marked, replaced = {}, {}, {}, {}, {}
local seen, fresh, longest = {}, 0, 4096 - 20
for j = 1, n do
  local id, class, us = ids[j], classes[j], times[j]
  local outcome, entry, ahead, later = '1', ticks[j], false, false
  if entry then
    ahead = reckons and marks[entry] > reckoned + 10000000
    if us > reckoned then
      outcome = 'e'
    elseif us <= marks[entry] and not ahead then
      outcome = 't'
    elseif us < reckoned - 5000000 then
      outcome = 'l'
    else
      marks[entry] = us
      marked[#marked + 1] = entry
      marked[#marked + 1] = digits(us)
    end
  elseif us then
    us = math.min(delays[j] and now + us or us, 9007199254740991) -- in the year 2255; a double holds no more
    later = us > now
  end
  if outcome == '1' then
    if seen[id] then
      outcome = seen[id]
    elseif present[j] then
      outcome = state(id)
      if (outcome == 'd' or outcome == 'c') and not cautious[j] and not entry then
        outcome = string.upper(outcome)
        replaced[#replaced + 1] = {id, outcome, redis.call('HSTRLEN', JOBS, id)}
      end
    end
    if outcome == '1' or outcome == 'D' or outcome == 'C' then
      seen[id] = later and 's' or '0'
      local envelope = ARGV[4 * j + 1]
      if extras[j] then
        envelope = with_extras(extras[j], envelope)
      end
      if #envelope > longest then
        longest = #envelope
      end
      records[2 * fresh + 1] = id
      if extras[j] or later or entry then
        local flags = extras[j] and string.sub(extras[j], 2, 2) or '\0'
        records[2 * fresh + 2] = '\1' .. class .. '\0' .. flags .. at .. (us and stamp(us) or at) .. envelope
      else
        heads[class] = heads[class] or '\1' .. class .. '\0\0' .. at .. at
        records[2 * fresh + 2] = heads[class] .. envelope
      end
      fresh = fresh + 1
      if later then
        due[#due + 1] = digits(us)
        due[#due + 1] = class .. id
      else
        local list = ready[class]
        list[#list + 1] = id
      end
      if ahead then
        outcome = 'r'
      end
    elseif entry then
      outcome = 't' -- the job of this tick is there, though the tick's mark was not
    end
  end
  outcomes[j] = outcome
end
longest = longest + 20
for class, list in pairs(ready) do
  if #list > 0 then
    redis.call('LLEN', lists[class])
  end
end
if #replaced > 0 then
  redis.call('HLEN', SPANS)
end

-- The first write is one that Redis refuses when it is out of memory. The record of a job comes after its id:
-- workers pass over an id without a record.
local outcome = table.concat(outcomes)
if fresh > 0 then
  local woken = false
  for class, list in pairs(ready) do
    if #list > 0 then
      redis.call('RPUSH', lists[class], unpack(list))
      woken = held_back == '' -- resuming wakes a worker
    end
  end
  if #due > 0 then
    redis.call('ZADD', DUE, unpack(due))
    local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
    woken = woken or not first[2] or tonumber(head[2]) < tonumber(first[2])
  end
  for _, old in ipairs(replaced) do
    if old[2] == 'D' then
      redis.call('ZREM', DEAD, old[1])
      count(STATS, 'dead_bytes', -old[3])
    else
      redis.call('ZREM', CANCELLED, old[1])
      count(STATS, 'cancelled_bytes', -old[3])
    end
    redis.call('HDEL', SPANS, old[1])
  end
  redis.call('HSET', JOBS, unpack(records))
  if woken then
    wake_one(WAKE)
  end
  count(STATS, 'enqueued', fresh)
  if not largest and redis.call('HLEN', JOBS) > fresh then
    longest = math.max(longest, 1049598) -- another program put the others in: they may be as large as any
  end
  if not largest or longest > largest then
    redis.call('HSET', STATS, 'largest', digits(longest)) -- claims bound their replies by it
  end
end
if #marked > 0 then
  redis.call('HSET', CRON, unpack(marked))
end
if string.find(outcome, '[^e]') then -- else nothing was done: the call can be made again when it is time
  redis.call('SET', LANE, digits(seq) .. ' ' .. outcome, 'PX', 3600000)
end
return {'ok', now, outcome}
