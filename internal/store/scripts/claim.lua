-- Settles a batch of deliveries, then claims ready jobs for a session.
--
-- KEYS: as named below; INFLIGHT is inflight:<session>
-- ARGV: 1 protocol, 2 sequence number of the call in its lane, 3 session, 4 jobs wanted,
--       5 '0' if no suspect may be among them, else for how long a suspect that runs keeps
--       others out of the session (us),
--       6 most terminal jobs kept, 7 most bytes of them, 8 how long they are kept (us), unless
--       the settings say so,
--       9 number of a call of this lane that was answered, for the same session, less than an
--       hour ago; 0 for none
--       10 number c of completed deliveries, 11 number m of marks, 12 most bytes of records to
--       return; the first job may have more, then c times: id, token,
--       then m times: id, token, span context of a delivery that runs on or will run again,
--       then for each other delivery: id, token, outcome, class, delay (us), record or ''
--       to keep the one that is there
--       outcome: 'retry' and 'delay' (run again after the delay), 'return' (run again at
--       once, before others), 'dead', 'cancelled', 'completed'; class: '0', '1', '2' or
--       's' (suspect)
-- Reply: {'ok', time in us, refused, alive, first token, more, next, expired, ids, records,
--         spans, known, held}
--        refused: positions, from 1, of deliveries that were superseded: nothing was
--        changed for them; alive: 0 if the session is unknown, over, or can't be
--        trusted, then nothing is claimed; more: 1 if ready jobs remain that the call, had it
--        wanted more or more bytes, could have had; next: us until a job is due or the first
--        session expires, -1 for never, not counting those in expired; expired: up to 8
--        sessions to reclaim; records: in the order of ids, whose tokens count up from the
--        first; an id is '' where a job of a call that is made again is gone; spans: the span
--        contexts of the last marks of the ids, as far as there are any, or empty; known: the
--        number of the lane's last call that Redis had before this one came, 0 if none; held:
--        why nothing was claimed: 'paused', or the queue's layout if it is newer than the
--        protocol (then next and expired are for others, and told to nobody); '' if it wasn't
--        {'stale'}  a later call of this lane was seen; nothing was done
-- Errors: those of Redis, and 'ERR signalbox: ...', before the first write.

local LANE, INFLIGHT, SESSIONS, FENCE, JOBS, DUE, WAKE, STATS, DEAD, CANCELLED, HIGH, NORMAL, LOW, SUSPECT, SPANS, SETTINGS = unpack(KEYS)

-- include: clock, digits, has_header, redue, standing, count, wake_one, retention, retain, upcoming

local seq, session, want = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local limits = {tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])}
local answered, completed, marks = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local hold, room = tonumber(ARGV[5]), tonumber(ARGV[12])
local fixed = 12 -- arguments before those of the deliveries
local now = clock()
local lane = redis.call('GET', LANE)
local lseq, lfirst, llast, lrefused
if lane then
  lseq, lfirst, llast, lrefused = string.match(lane, '^(%d+) (%d+) (%d+) ([%d,]*)$')
  lseq = tonumber(lseq)
  if lseq and seq < lseq then
    return {'stale'}
  end
end

-- Every key is read before the first write, so that one of the wrong type changes nothing.
local held_back = standing(SETTINGS, ARGV[1])
local newer = held_back ~= '' and held_back ~= 'paused'
local expiry = redis.call('ZSCORE', SESSIONS, session)
local alive = expiry and tonumber(expiry) > now
-- Redis has lost a call that was answered, in a failover: it may count jobs as running here that
-- were settled then. Nobody would ever take them back from a session that lives. So it ends.
if answered > 0 and (not lseq or lseq < answered) then
  alive = false
end
local fence = redis.call('GET', FENCE) or '0'
if not string.match(fence, '^%d+$') or #fence > 16 or tonumber(fence) > 9007199254000000 then
  return redis.error_reply('ERR signalbox: the fence key holds no token: set it to the server\'s time in microseconds, or higher if it was higher')
end
fence = tonumber(fence)
local held = {}
local first_mark = fixed + 1 + 2 * completed
local others = first_mark + 3 * marks
if #ARGV > fixed then
  local ids, n = {}, 0
  for i = fixed + 1, first_mark - 1, 2 do
    n = n + 1
    ids[n] = ARGV[i]
  end
  for i = others, #ARGV, 6 do
    n = n + 1
    ids[n] = ARGV[i]
  end
  for i = first_mark, others - 1, 3 do
    n = n + 1
    ids[n] = ARGV[i]
  end
  held = redis.call('HMGET', INFLIGHT, unpack(ids))
else
  redis.call('HLEN', INFLIGHT)
end
local kept = redis.call('HLEN', JOBS)
local promotable = redis.call('ZRANGEBYSCORE', DUE, '-inf', digits(now), 'LIMIT', 0, newer and 0 or 500)
redis.call('LLEN', WAKE)
-- No job that isn't terminal has a larger record, if that is known.
local largest = tonumber((string.match(redis.call('HGET', STATS, 'largest') or '', '^%d+$')))
local terminal = redis.call('ZCARD', DEAD) + redis.call('ZCARD', CANCELLED)
local marked = redis.call('HLEN', SPANS) > 0 or marks > 0
local lists = {['0'] = HIGH, ['1'] = NORMAL, ['2'] = LOW, ['s'] = SUSPECT}
if others <= #ARGV then
  limits = retention(SETTINGS, limits)
end
local waiting = {} -- the length of each ready list, by its key
for _, list in pairs(lists) do
  waiting[list] = redis.call('LLEN', list)
end

local refused = {}
local grown = 0 -- the largest record that was written
local suspects_ready = false -- a suspect became ready, or was taken from among others
local crowded = false -- suspects were left since their records have no room in the reply

-- Whether the records wanted may be too large to be read unmeasured. Small ones never are.
local function large(bytes)
  return not largest or not (largest <= 4096 or want * largest <= bytes)
end

-- In the hash, flags stand behind a token and a space: of a suspect an 's' and the number of its crashes.
local function owns(j, token)
  return held[j] == token or held[j] and string.match(held[j], '^(%d+) ') == token
end

local function settle()
  local ids, n = {}, 0
  for j = 1, completed do
    local i = fixed - 1 + 2 * j
    local token = ARGV[i + 1]
    if held[j] == token or owns(j, token) then
      n = n + 1
      ids[n] = ARGV[i]
    else
      refused[#refused + 1] = j
    end
  end
  -- The first write is one that Redis permits when it is out of memory, and with it all that
  -- follows.
  if n == 0 then
    redis.call('HDEL', INFLIGHT, '')
  else
    count(STATS, 'completed', redis.call('HDEL', INFLIGHT, unpack(ids)))
    redis.call('HDEL', JOBS, unpack(ids))
    if marked then
      redis.call('HDEL', SPANS, unpack(ids))
    end
  end
  local spans, j = {}, #held - marks
  for i = first_mark, others - 1, 3 do
    j = j + 1
    if owns(j, ARGV[i + 1]) then
      spans[#spans + 1] = ARGV[i]
      spans[#spans + 1] = ARGV[i + 1] .. ' ' .. ARGV[i + 2]
    end
  end
  if #spans > 0 then
    redis.call('HSET', SPANS, unpack(spans))
  end
  -- Each goes to its new place before it leaves the session, so that a user who isn't permitted a
  -- command loses no job.
  local ended = {}
  if others <= #ARGV then
    for k = 1, n do
      ended[ids[k]] = true
    end
  end
  j = completed
  for i = others, #ARGV, 6 do
    j = j + 1
    local id, outcome, class, record = ARGV[i], ARGV[i + 2], ARGV[i + 3], ARGV[i + 5]
    if ended[id] or not owns(j, ARGV[i + 1]) then
      refused[#refused + 1] = j
    else
      ended[id] = true
      local again = outcome == 'retry' or outcome == 'delay'
      local there = true
      if record == '' then -- it is read only if it changes: it may be large
        if again then
          record = redis.call('HGET', JOBS, id)
          there = record
        else
          record = nil
          there = redis.call('HEXISTS', JOBS, id) == 1
        end
      end
      if there then
        if again then
          local at = now + ARGV[i + 4]
          redis.call('HSET', JOBS, id, redue(record, at))
          grown = math.max(grown, #record)
          redis.call('ZADD', DUE, digits(at), class .. id)
          if at <= now then
            promotable[#promotable + 1] = class .. id
          end
        elseif outcome == 'return' then
          local list = lists[class] or NORMAL
          waiting[list] = redis.call('LPUSH', list, id)
          suspects_ready = suspects_ready or class == 's'
        elseif outcome == 'completed' then
          redis.call('HDEL', JOBS, id)
        elseif outcome == 'dead' then
          retain(DEAD, 'dead_bytes', JOBS, STATS, limits, now, id, record)
        else
          retain(CANCELLED, 'cancelled_bytes', JOBS, STATS, limits, now, id, record)
        end
        count(STATS, outcome, 1)
      end
      if marked and (not there or outcome == 'completed' or outcome == 'dead' or outcome == 'cancelled') then
        redis.call('HDEL', SPANS, id)
      end
      redis.call('HDEL', INFLIGHT, id)
    end
  end
end

local function promote()
  local moved = {}
  for _, member in ipairs(promotable) do
    local class = string.sub(member, 1, 1)
    moved[class] = moved[class] or {}
    table.insert(moved[class], string.sub(member, 2))
  end
  for class, ids in pairs(moved) do
    local list = lists[class] or NORMAL
    waiting[list] = redis.call('RPUSH', list, unpack(ids))
    suspects_ready = suspects_ready or class == 's'
  end
  if #promotable > 0 then
    redis.call('ZREM', DUE, unpack(promotable))
  end
end

-- What the suspects of the session leave room for: how many suspects with two crashes, and whether
-- one with more, and one with a single crash left. A session that ends charges all its jobs. So
-- those with two crashes run eight at a time, those with three apart, each of them until it has
-- run for as long as a suspect keeps others out; and one that a single crash is left to has no
-- suspect beside it, however long it runs: no suspect dies of another's fault.
local function suspects_welcome()
  local light, heavy, last = 8, true, true
  for _, value in ipairs(redis.call('HVALS', INFLIGHT)) do
    local token, crashes = string.match(value, '^(%d+) s(%d*)')
    if token then
      crashes = tonumber(crashes) or 4
      last = false
      if crashes >= 4 then
        return 0, false, false
      elseif now - token < hold then
        heavy = false
        light = crashes == 2 and light - 1 or 0
      end
    end
  end
  return light, heavy, last
end

-- The marks of those of the first n suspects that the session may take, which stand behind their
-- tokens, and whether there are more that there is no room for.
local function suspects_among(n)
  local light, heavy, last = suspects_welcome()
  local marks = {}
  if light <= 0 and not heavy then
    return marks, false
  end
  for i, id in ipairs(redis.call('LRANGE', SUSPECT, 0, n - 1)) do
    local size = redis.call('HSTRLEN', JOBS, id)
    if i > 1 and size > room then
      return marks, true
    end
    room = room - size
    local record = redis.call('HGET', JOBS, id)
    local crashes = record and has_header(record) and math.max(string.byte(record, 3), 2) or 2
    if not record then
      marks[i] = '' -- it is taken from the list, and that is all
    elseif crashes == 2 and light > 0 or crashes == 3 and heavy or crashes > 3 and last then
      marks[i] = ' s' .. crashes
      light, heavy, last = crashes == 2 and light - 1 or 0, false, false
    else
      break
    end
  end
  return marks, false
end

-- Ids without a record, and ids that are in flight, are skipped.
local function claim()
  local popped, full = {}, false
  local function pop(list, n)
    local ids = redis.call('LPOP', list, n)
    waiting[list] = waiting[list] - #ids
    if #popped == 0 then
      popped = ids
    else
      for i = 1, #ids do
        popped[#popped + 1] = ids[i]
      end
    end
  end
  -- How many of the first n ids of a list have records that there is room for.
  local function fitting(list, n)
    for i, id in ipairs(redis.call('LRANGE', list, 0, n - 1)) do
      local size = redis.call('HSTRLEN', JOBS, id)
      if size > room and #popped + i > 1 then
        full = true
        return i - 1
      end
      room = room - size
    end
    return n
  end
  local marks = {}
  if hold > 0 and want > 0 and waiting[SUSPECT] > 0 then
    marks, crowded = suspects_among(math.min(want, 8))
    if #marks > 0 then
      pop(SUSPECT, #marks)
      suspects_ready = true
    end
  end
  -- No record is read before its size is known to be within bounds.
  local measure = large(room)
  for _, list in ipairs({HIGH, NORMAL, LOW}) do
    local n = math.min(want - #popped, waiting[list])
    if n > 0 and not full then
      n = measure and fitting(list, n) or n
      if n > 0 then
        pop(list, n)
      end
    end
  end
  if #popped == 0 then
    return 1, {}, {}, full or want == 0
  end
  local records = redis.call('HMGET', JOBS, unpack(popped))
  local busy = redis.call('HMGET', INFLIGHT, unpack(popped))
  local token = math.max(fence + 1, now)
  local ids, bodies, grants, seen, n = {}, {}, {}, {}, 0
  for i = 1, #popped do
    local id = popped[i]
    if records[i] and not busy[i] and not seen[id] then
      seen[id] = true
      grants[2 * n + 1] = id
      grants[2 * n + 2] = marks[i] and digits(token + n) .. marks[i] or digits(token + n)
      n = n + 1
      ids[n], bodies[n] = id, records[i]
      if #records[i] > grown then
        grown = #records[i]
      end
    end
  end
  if n > 0 then
    -- Redis searches a small hash from end to end, unless it once held a value of more than 64
    -- bytes, and others were there when that went. So a larger batch has one with it.
    if n >= 16 then
      grants[2 * n + 1], grants[2 * n + 2] = '', string.rep('-', 65)
    end
    redis.call('HSET', INFLIGHT, unpack(grants))
    if n >= 16 then
      redis.call('HDEL', INFLIGHT, '')
    end
    redis.call('SET', FENCE, digits(token + #ids - 1))
  end
  return token, ids, bodies, full or #popped == want
end

-- The jobs of a call that is made again since its reply was lost.
local function claimed_before()
  local ids, bodies = {}, {}
  local first, last = tonumber(lfirst), tonumber(llast)
  if first > last then
    return first, ids, bodies
  end
  local entries = redis.call('HGETALL', INFLIGHT)
  local at = {}
  for i = 1, #entries, 2 do
    local token = tonumber(string.match(entries[i + 1], '^%d+') or 'none')
    if token and token >= first and token <= last then
      at[token] = entries[i]
    end
  end
  for token = first, last do
    ids[#ids + 1] = at[token] or ''
    bodies[#bodies + 1] = at[token] and redis.call('HGET', JOBS, at[token]) or false
  end
  return first, ids, bodies
end

local first, ids, bodies, cut
local again = lseq == seq
if again then
  redis.call('HDEL', INFLIGHT, '') -- permitted out of memory, as in settle: wake_one may follow
  for position in string.gmatch(lrefused, '%d+') do
    refused[#refused + 1] = tonumber(position)
  end
  first, ids, bodies = claimed_before()
else
  settle()
  promote()
  first, ids, bodies, cut = 1, {}, {}, want == 0
  if alive and held_back == '' then
    first, ids, bodies, cut = claim()
  end
  if largest and grown > largest then
    redis.call('HSET', STATS, 'largest', grown)
  elseif largest and kept == terminal and large(tonumber(ARGV[12])) then
    redis.call('HSET', STATS, 'largest', 4096) -- the large ones are gone
  end
  local last = first + #ids - 1
  redis.call('SET', LANE, digits(seq) .. ' ' .. digits(first) .. ' ' .. digits(last) .. ' ' .. table.concat(refused, ','),
    'PX', 3600000)
end

local more = 0
if held_back ~= '' then
  -- Resuming wakes a worker. An older worker passes the wake-up marker on, whatever it is for: this call can't know.
  if newer then
    wake_one(WAKE)
  end
elseif (again or not alive or cut) and waiting[HIGH] + waiting[NORMAL] + waiting[LOW] > 0
    or crowded then
  more = 1
  wake_one(WAKE)
elseif suspects_ready and waiting[SUSPECT] > 0 then
  wake_one(WAKE) -- for a session that may take one
end

local following, expired = -1, {}
if not newer then
  following, expired = upcoming(DUE, SESSIONS, now)
end
local spans = {}
if marked and #ids > 0 then
  spans = redis.call('HMGET', SPANS, unpack(ids))
  for i = 1, #ids do
    spans[i] = spans[i] and string.match(spans[i], '^%d+ (.*)$') or false
  end
end
return {'ok', now, refused, alive and 1 or 0, first, more, following, expired, ids, bodies, spans, lseq or 0,
  held_back}
