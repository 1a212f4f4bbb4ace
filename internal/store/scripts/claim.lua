-- Settles a batch of deliveries, then claims ready jobs for a session.
--
-- KEYS: 1 lane, 2 inflight:<session>, 3 sessions, 4 fence, 5 jobs, 6 due, 7 wake, 8 stats,
--       9 dead, 10 cancelled, 11 ready:high, 12 ready:normal, 13 ready:low, 14 ready:suspect,
--       15 spans
-- ARGV: 1 sequence number of the call in its lane, 2 session, 3 jobs wanted,
--       4 '1' if a suspect may be among them,
--       5 most terminal jobs kept, 6 most bytes of them, 7 how long they are kept (us),
--       8 number of a call of this lane that was answered, for the same session, less than an
--       hour ago; 0 for none
--       9 number c of completed deliveries, 10 number m of marks, then c times: id, token,
--       then m times: id, token, span context of a delivery that runs on or will run again,
--       then for each other delivery: id, token, outcome, class, delay (us), record or ''
--       to keep the one that is there
--       outcome: 'retry' and 'delay' (run again after the delay), 'return' (run again at
--       once, before others), 'dead', 'cancelled', 'completed'; class: '0', '1', '2' or
--       's' (suspect)
-- Reply: {'ok', time in us, refused, alive, first token, more, next, expired, ids, records,
--         spans}
--        refused: positions, from 1, of deliveries that were superseded: nothing was
--        changed for them; alive: 0 if the session is unknown, over, or can't be
--        trusted, then nothing is claimed; more: 1 if ready jobs remain; next: us until a job is due or the first
--        session expires, -1 for never, not counting those in expired; expired: up to 8
--        sessions to reclaim; records: in the order of ids, whose tokens count up from the
--        first; an id is '' where a job of a call that is made again is gone; spans: the span
--        contexts of the last marks of the ids, as far as there are any, or empty
--        {'stale'}  a later call of this lane was seen; nothing was done
-- Errors: those of Redis, and 'ERR signalbox: ...', before the first write.

local seq, session, want = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local limits = {tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])}
local answered, completed, marks = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local now = clock()
local lane = redis.call('GET', KEYS[1])
local lseq, lfirst, llast, lrefused
if lane then
  lseq, lfirst, llast, lrefused = string.match(lane, '^(%d+) (%d+) (%d+) ([%d,]*)$')
  lseq = tonumber(lseq)
  if lseq and seq < lseq then
    return {'stale'}
  end
end

-- Every key is read before the first write, so that one of the wrong type changes nothing.
local expiry = redis.call('ZSCORE', KEYS[3], session)
local alive = expiry and tonumber(expiry) > now
-- Redis has lost a call that was answered, in a failover: it may count jobs as running here that
-- were settled then. Nobody would ever take them back from a session that lives. So it ends.
if answered > 0 and (not lseq or lseq < answered) then
  alive = false
end
local fence = redis.call('GET', KEYS[4]) or '0'
if not string.match(fence, '^%d+$') or #fence > 16 or tonumber(fence) > 9007199254000000 then
  return redis.error_reply('ERR signalbox: the fence key holds no token: set it to the server\'s time in microseconds, or higher if it was higher')
end
fence = tonumber(fence)
local held = {}
local first_mark = 11 + 2 * completed
local others = first_mark + 3 * marks
if #ARGV > 10 then
  local ids = {}
  for i = 11, first_mark - 1, 2 do
    ids[#ids + 1] = ARGV[i]
  end
  for i = others, #ARGV, 6 do
    ids[#ids + 1] = ARGV[i]
  end
  for i = first_mark, others - 1, 3 do
    ids[#ids + 1] = ARGV[i]
  end
  held = redis.call('HMGET', KEYS[2], unpack(ids))
else
  redis.call('HLEN', KEYS[2])
end
redis.call('HLEN', KEYS[5])
local promotable = redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', digits(now), 'LIMIT', 0, 500)
redis.call('LLEN', KEYS[7])
redis.call('HLEN', KEYS[8])
redis.call('ZCARD', KEYS[9])
redis.call('ZCARD', KEYS[10])
local marked = redis.call('HLEN', KEYS[15]) > 0 or marks > 0
local waiting = {} -- the length of each ready list, by its key
for k = 11, 14 do
  waiting[KEYS[k]] = redis.call('LLEN', KEYS[k])
end

local lists = {['0'] = KEYS[11], ['1'] = KEYS[12], ['2'] = KEYS[13], ['s'] = KEYS[14]}
local refused = {}

-- In the hash, an 's' stands behind the token of a suspect.
local function owns(j, token)
  return held[j] == token or held[j] == token .. 's'
end

local function settle()
  local ids, n = {}, 0
  for j = 1, completed do
    local i = 9 + 2 * j
    if owns(j, ARGV[i + 1]) then
      n = n + 1
      ids[n] = ARGV[i]
    else
      refused[#refused + 1] = j
    end
  end
  -- The first write is one that Redis permits when it is out of memory, and with it all that
  -- follows.
  if n == 0 then
    redis.call('HDEL', KEYS[2], '')
  else
    count(KEYS[8], 'completed', redis.call('HDEL', KEYS[2], unpack(ids)))
    redis.call('HDEL', KEYS[5], unpack(ids))
    if marked then
      redis.call('HDEL', KEYS[15], unpack(ids))
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
    redis.call('HSET', KEYS[15], unpack(spans))
  end
  j = completed
  for i = others, #ARGV, 6 do
    j = j + 1
    local id, outcome, class, record = ARGV[i], ARGV[i + 2], ARGV[i + 3], ARGV[i + 5]
    if not owns(j, ARGV[i + 1]) or redis.call('HDEL', KEYS[2], id) == 0 then
      refused[#refused + 1] = j
    else
      if record == '' then
        record = redis.call('HGET', KEYS[5], id)
      end
      if record then
        local at = now + ARGV[i + 4]
        if outcome == 'return' then
          local list = lists[class] or KEYS[12]
          waiting[list] = redis.call('LPUSH', list, id)
        elseif outcome == 'completed' then
          redis.call('HDEL', KEYS[5], id)
        elseif outcome == 'dead' then
          retain(KEYS[9], 'dead_bytes', KEYS[5], KEYS[8], limits, now, id, record)
        elseif outcome == 'cancelled' then
          retain(KEYS[10], 'cancelled_bytes', KEYS[5], KEYS[8], limits, now, id, record)
        else
          redis.call('HSET', KEYS[5], id, redue(record, at))
          redis.call('ZADD', KEYS[6], digits(at), class .. id)
          if at <= now then
            promotable[#promotable + 1] = class .. id
          end
        end
        count(KEYS[8], outcome, 1)
        if marked and (outcome == 'completed' or outcome == 'dead' or outcome == 'cancelled') then
          redis.call('HDEL', KEYS[15], id)
        end
      elseif marked then
        redis.call('HDEL', KEYS[15], id)
      end
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
    local list = lists[class] or KEYS[12]
    waiting[list] = redis.call('RPUSH', list, unpack(ids))
    if class == 's' and ARGV[4] ~= '1' then
      wake_one(KEYS[7]) -- this session may not take it
    end
  end
  if #promotable > 0 then
    redis.call('ZREM', KEYS[6], unpack(promotable))
  end
end

-- No two suspects share a session: if both ran when it ended, nobody could tell which did it.
local function suspect_held()
  for _, token in ipairs(redis.call('HVALS', KEYS[2])) do
    if string.sub(token, -1) == 's' then
      return true
    end
  end
  return false
end

-- Ids without a record, and ids that are in flight, are skipped.
local function claim()
  local popped = {}
  local function pop(list, n)
    if n > 0 and waiting[list] > 0 then
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
  end
  if ARGV[4] == '1' and want > 0 and waiting[KEYS[14]] > 0 and not suspect_held() then
    pop(KEYS[14], 1)
  end
  local suspects = #popped
  for k = 11, 13 do
    pop(KEYS[k], want - #popped)
  end
  if suspects > 0 and waiting[KEYS[14]] > 0 then
    wake_one(KEYS[7])
  end
  if #popped == 0 then
    return 1, {}, {}, 0
  end
  local records = redis.call('HMGET', KEYS[5], unpack(popped))
  local busy = redis.call('HMGET', KEYS[2], unpack(popped))
  local token = math.max(fence + 1, now)
  local ids, bodies, grants, seen, n = {}, {}, {}, {}, 0
  for i = 1, #popped do
    local id = popped[i]
    if records[i] and not busy[i] and not seen[id] then
      seen[id] = true
      grants[2 * n + 1] = id
      grants[2 * n + 2] = i <= suspects and digits(token + n) .. 's' or digits(token + n)
      n = n + 1
      ids[n], bodies[n] = id, records[i]
    end
  end
  if n > 0 then
    -- Redis searches a small hash from end to end, unless it once held a value of more than 64
    -- bytes. So a batch that makes it grow much begins with one.
    if n >= 16 and redis.call('HLEN', KEYS[2]) < n then
      redis.call('HSET', KEYS[2], '', string.rep('-', 65))
      redis.call('HDEL', KEYS[2], '')
    end
    redis.call('HSET', KEYS[2], unpack(grants))
    redis.call('SET', KEYS[4], digits(token + #ids - 1))
  end
  return token, ids, bodies, #popped
end

-- The jobs of a call that is made again since its reply was lost.
local function claimed_before()
  local ids, bodies = {}, {}
  local first, last = tonumber(lfirst), tonumber(llast)
  if first > last then
    return first, ids, bodies
  end
  local entries = redis.call('HGETALL', KEYS[2])
  local at = {}
  for i = 1, #entries, 2 do
    local token = tonumber(string.match(entries[i + 1], '^%d+') or 'none')
    if token and token >= first and token <= last then
      at[token] = entries[i]
    end
  end
  for token = first, last do
    ids[#ids + 1] = at[token] or ''
    bodies[#bodies + 1] = at[token] and redis.call('HGET', KEYS[5], at[token]) or false
  end
  return first, ids, bodies
end

local first, ids, bodies, popped
local again = lseq == seq
if again then
  redis.call('HDEL', KEYS[2], '') -- permitted out of memory, as in settle: wake_one may follow
  for position in string.gmatch(lrefused, '%d+') do
    refused[#refused + 1] = tonumber(position)
  end
  first, ids, bodies = claimed_before()
else
  settle()
  promote()
  first, ids, bodies, popped = 1, {}, {}, 0
  if alive then
    first, ids, bodies, popped = claim()
  end
  local last = first + #ids - 1
  redis.call('SET', KEYS[1], string.format('%.0f %.0f %.0f %s', seq, first, last, table.concat(refused, ',')),
    'PX', 3600000)
end

local more = 0
if (again or not alive or popped == want) and waiting[KEYS[11]] + waiting[KEYS[12]] + waiting[KEYS[13]] > 0 then
  more = 1
  wake_one(KEYS[7])
end

local following, expired = upcoming(KEYS[6], KEYS[3], now)
local spans = {}
if marked and #ids > 0 then
  spans = redis.call('HMGET', KEYS[15], unpack(ids))
  for i = 1, #ids do
    spans[i] = spans[i] and string.match(spans[i], '^%d+ (.*)$') or false
  end
end
return {'ok', now, refused, alive and 1 or 0, first, more, following, expired, ids, bodies, spans}
