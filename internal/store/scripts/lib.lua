-- What scripts share. Each function stands before the scripts that use it, so a function uses only those before it.
-- A blank line stands between two functions, and nowhere else.

-- The server's clock in microseconds. A double holds them exactly until the year 2255.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- Returns a whole number in digits. tostring would turn microseconds into 1.76e+15, '%.0f' takes three times as long as '%d',
-- and '%d' has 32 bits on some platforms.
local whole = string.format('%d', 4294967296) == '4294967296' and '%d' or '%.0f'
local function digits(n)
  return string.format(whole, n)
end

-- A time as the 8 bytes, big endian, of a record's header.
local function stamp(us)
  local b = {}
  for i = 8, 1, -1 do
    b[i] = us % 256
    us = (us - b[i]) / 256
  end
  return string.char(unpack(b))
end

-- Whether it begins with a record's header, of whatever version. Else it is kept as it is.
local function has_header(record)
  return #record >= 20 and string.find(record, '^[\1-\31][012]') ~= nil
end

-- The record with another due time.
local function redue(record, us)
  if not has_header(record) then
    return record
  end
  return string.sub(record, 1, 12) .. stamp(us) .. string.sub(record, 21)
end

-- Returns what the queue's settings say to a call of a protocol: '' if it may add and take jobs, 'paused' if none are to be
-- taken, or the queue's layout if that is newer than the protocol. Then the call may only settle what was taken before.
local function standing(settings, protocol)
  local layout, paused = unpack(redis.call('HMGET', settings, 'layout', 'paused'))
  if layout and not string.find(layout, '^%d%d?%d?$') then
    layout = '999' -- whoever wrote it knows more than this call
  end
  if layout and tonumber(layout) > tonumber(protocol) then
    return layout
  end
  return paused and 'paused' or ''
end

-- Adds to a counter and returns the sum. A counter that holds no number, or too large a one, begins
-- anew: it must not stop a script between its writes. Any other failure leaves it as it is.
local function count(stats, field, n)
  local sum = redis.pcall('HINCRBY', stats, field, n)
  if type(sum) == 'number' then
    return sum
  elseif string.find(sum.err, 'integer') or string.find(sum.err, 'overflow') then
    redis.call('HSET', stats, field, n)
    return n
  end
  return 0
end

-- Returns the first of some commands, each a list with its arguments, that the user who calls the script
-- may not run, or nil. The server has redis.acl_check_cmd.
local function denied_command(commands)
  for _, command in ipairs(commands) do
    if not redis.acl_check_cmd(unpack(command)) then
      return command[1] .. ' on ' .. (command[2] or 'the server')
    end
  end
end

-- Leaves one token for an idle worker, unless one is there already.
local function wake_one(key)
  if redis.call('LLEN', key) == 0 then
    redis.call('LPUSH', key, '1')
  end
end

-- What a queue keeps of its dead jobs, and of its cancelled ones, which count apart: {most jobs, most bytes, how long in us}.
-- The queue's settings say it, or else limits, a list of the same.
local function retention(settings, limits)
  local set = redis.call('HMGET', settings, 'keep_jobs', 'keep_bytes', 'keep_us')
  for i = 1, 3 do
    local known = set[i] and #set[i] <= 15 and string.find(set[i], '^[1-9]%d*$')
    set[i] = known and tonumber(set[i]) or limits[i]
  end
  return set
end

-- Drops the oldest terminal jobs while there are too many, too many bytes of them or too old ones, and returns how many: at most
-- most. bytes is how many they have.
local function trim(set, bytes, field, jobs, stats, limits, now, most)
  local kept = redis.call('ZCARD', set)
  for dropped = 0, most - 1 do
    local oldest = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')
    if not oldest[1] or (kept <= limits[1] and bytes <= limits[2]
        and tonumber(oldest[2]) > now - limits[3]) then
      return dropped
    end
    local size = redis.call('HSTRLEN', jobs, oldest[1])
    redis.call('HDEL', jobs, oldest[1]) -- permitted out of memory, and with it what follows
    redis.call('ZREM', set, oldest[1])
    bytes = count(stats, field, -size)
    kept = kept - 1
  end
  return most
end

-- Keeps a terminal job: its record, which is replaced if there is another, stays in jobs, its id
-- in the sorted set, scored by the time; then drops the oldest beyond limits, at most 100 a call.
local function retain(set, field, jobs, stats, limits, now, id, record)
  redis.call('ZADD', set, digits(now), id)
  if record then
    redis.call('HSET', jobs, id, record)
  end
  local bytes = count(stats, field, redis.call('HSTRLEN', jobs, id))
  trim(set, bytes, field, jobs, stats, limits, now, 100)
end

-- What is to be done next: microseconds until a job is due or the first session expires (-1 for
-- never, 0 if it is so already), and up to 8 sessions that have expired.
local function upcoming(due, sessions, now)
  local following, expired = -1, {}
  local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
  if head[2] then
    following = math.max(tonumber(head[2]) - now, 0)
  end
  head = redis.call('ZRANGE', sessions, 0, 0, 'WITHSCORES')
  if head[2] then
    local ends = tonumber(head[2]) - now
    if ends <= 0 then
      expired = redis.call('ZRANGEBYSCORE', sessions, '-inf', digits(now), 'LIMIT', 0, 8)
      head = redis.call('ZRANGEBYSCORE', sessions, '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      ends = head[2] and tonumber(head[2]) - now
    end
    if ends and (following < 0 or ends < following) then
      following = ends
    end
  end
  return following, expired
end
