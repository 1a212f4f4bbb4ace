-- Counters, and what is noted of them over time.

-- Adds n to a counter and returns the sum. If the counter holds no number, or one that is too large, it starts again from n: an error
-- must not stop a script between its writes. After any other error the counter is unchanged.
local function count_up(stats, field, n)
  local sum = redis.pcall('HINCRBY', stats, field, digits(n)) -- digits is faster than what Redis makes of a number
  if type(sum) == 'number' then
    return sum
  elseif string.find(sum.err, 'integer') or string.find(sum.err, 'overflow') then
    redis.call('HSET', stats, field, n)
    return n
  end
  return 0
end

-- Notes that n jobs have changed their state. Every counted change of a queue's jobs passes here, and is counted in stats. Returns the sum.
local function note_change(change, n)
  return count_up(STATS, change, n)
end

-- Returns what the counters of stats say, as a text: the numbers in the order of all() in history.go, with spaces between. A counter that
-- holds no such number counts as 0. If stats can't be read, returns nil and the error.
local function totals_of(stats)
  local totals = redis.pcall('HMGET', stats, 'enqueued', 'completed', 'retry', 'delay', 'return', 'dead', 'cancelled', 'crashed',
    'deleted', 'revived', 'expired')
  if totals.err then
    return nil, totals
  end
  for i = 1, 11 do
    local n = totals[i]
    if not n or #n > 16 or not string.find(n, '^%d+$') then
      totals[i] = '0'
    end
  end
  return table.concat(totals, ' ')
end

-- Notes in history what the counters of stats say now, and adds times of deliveries there. The field of this minute, and that of this
-- hour, get the counters in place of those that were noted earlier in it. So the difference of two fields is what happened in between.
-- While nothing changes, only two fields do: last, and before, which has the last note of an earlier minute than last. The fields since:m and since:h have the first note of all,
-- or the first one after more than three hours, or thirty days, without any: they are what the first period is counted from.
--   lane, seq: the times are added once, however often they come: seq is greater than the number that lane has. lane is nil if there
--              are no times
--   waited, ran: how many deliveries took how long, as bucket ':' number, with commas between; both are '' if there are no times
-- These are statistics. So a call that takes them along goes on, whatever is wrong with them: each command is a pcall.
local function sample(lane, stats, history, now, seq, waited, ran)
  local totals = totals_of(stats)
  local there = redis.pcall('HMGET', history, 'last', 'before', 'since:m', 'since:h')
  if not totals or there.err then
    return
  end
  local rings = { -- the first letter of the fields, their length (us), and how many there are; the field of the first note, what it had
    {'m', 60000000, 180, 'since:m', there[3]},
    {'h', 3600000000, 720, 'since:h', there[4]},
  }

  if waited .. ran ~= '' then
    local before = redis.pcall('GET', lane)
    if type(before) == 'string' and tonumber(before) and tonumber(before) >= tonumber(seq) then
      waited, ran = '', ''
    else
      -- This comes first. If Redis refuses what follows, the times are missing, and are never added twice.
      local set = redis.pcall('SET', lane, seq, 'PX', 3600000)
      if type(set) == 'table' and set.err then
        waited, ran = '', ''
      end
    end
  end

  -- Returns the sum of two histograms.
  local function sum(a, b)
    if a == '' or b == '' then
      return a .. b
    end
    local sums, list = {}, {}
    for bucket, n in string.gmatch(a .. ',' .. b, '(%d+):(%d+)') do
      sums[bucket] = math.min((sums[bucket] or 0) + tonumber(n), 9007199254740991) -- a double holds no more
    end
    for bucket = 0, 23 do
      local n = sums[digits(bucket)]
      if n then
        list[#list + 1] = digits(bucket) .. ':' .. digits(n)
      end
    end
    return table.concat(list, ',')
  end

  -- Notes counters, as they were at a time, in the fields of its minute and its hour, and adds times there. A field that has another
  -- minute or hour, or that no script has written, is replaced.
  local function put(at, counters, waits, runs)
    for _, ring in ipairs(rings) do
      local letter, us, fields = unpack(ring)
      local number = math.floor(at / us)
      local field = letter .. digits(number % fields)
      local all_waits, all_runs = waits, runs
      local old = redis.pcall('HGET', history, field)
      if type(old) == 'string' then
        local noted, old_waits, old_runs = string.match(old, '^(%d+) [%d ]+;([%d:,]*);([%d:,]*)$')
        if noted and math.floor(tonumber(noted) / us) == number then
          all_waits, all_runs = sum(old_waits, waits), sum(old_runs, runs)
        end
      end
      redis.pcall('HSET', history, field, digits(at) .. ' ' .. counters .. ';' .. all_waits .. ';' .. all_runs)
    end
  end

  local note = '^(%d+) ([%d ]+)$'
  local at, counted = string.match(there[1] or '', note)
  local older = there[2]
  at = tonumber(at)
  if at and math.floor(at / 60000000) < math.floor(now / 60000000) then
    older = there[1]
    redis.pcall('HSET', history, 'before', older)
  end
  if totals ~= counted or waited .. ran ~= '' then
    local ended, counted_then = string.match(older or '', note)
    if ended and counted_then == counted then
      put(tonumber(ended), counted, '', '') -- this is the first change of the minute: up to there, nothing had happened
    end
    put(now, totals, waited, ran)
  end
  local noted = digits(now) .. ' ' .. totals
  for _, ring in ipairs(rings) do
    local _, us, fields, since, text = unpack(ring)
    if not at or now - at > us * fields or not string.find(text or '', note) then
      redis.pcall('HSET', history, since, noted)
    end
  end
  redis.pcall('HSET', history, 'last', noted)
end
