-- Takes back jobs of a session that expired, to the head of their ready lists, and counts a crash
-- for each. At two crashes a job becomes a suspect, and claim.lua says which suspects a session
-- may have together: so those that crashed for another's fault run apart from it, and complete. At
-- the limit a job is dead.
--
-- KEYS: as named below; INFLIGHT is inflight:<session>
-- ARGV: 1 protocol, 2 session, 3 crashes at which a job is dead,
--       4 bytes to append to the record of a job that is dead (its last error),
--       5 to 7 as 6 to 8 in claim.lua, 8 most bytes of records to read; the first job may have more,
--       9 '1' to return the records of jobs that run again,
--       then for each job, the newest delivery first: id, what the session's hash holds for it
-- Reply: {'ok', left, now, done, reclaimed, dead, lost}: deliveries left in the session; the clock;
--        how many of the jobs, from the first, are done with: those that the hash doesn't hold so
--        any more changed nothing; ids of jobs that run again; id, token, record and mark of each
--        that is dead, one after the other (claim.lua gives no session two jobs that can die here);
--        likewise of those that run again, but for one whose record is larger than ARGV 8. A mark is
--        of the delivery that was lost, or empty: one that an attempt before it left is dropped.
--        {'alive'}  the session was renewed; nothing was done
--        {'newer'}  the queue's layout is newer than the protocol; nothing was done
-- Errors: those of Redis, and 'NOPERM signalbox: ...', before the first write.

local INFLIGHT, SESSIONS, JOBS, WAKE, STATS, DEAD, HIGH, NORMAL, LOW, SUSPECT, SPANS, SETTINGS = unpack(KEYS)

-- include: clock, has_header, standing, count, wake_one, retention, retain

local now = clock()
local expiry = redis.call('ZSCORE', SESSIONS, ARGV[2])
if expiry and tonumber(expiry) > now then
  return {'alive'}
end
local held_back = standing(SETTINGS, ARGV[1])
if held_back ~= '' and held_back ~= 'paused' then
  return {'newer'}
end
local ids = {}
for i = 10, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local held, marks = {}, {}
if #ids > 0 then
  held = redis.call('HMGET', INFLIGHT, unpack(ids))
  marks = redis.call('HMGET', SPANS, unpack(ids))
else
  redis.call('HLEN', INFLIGHT)
  redis.call('HLEN', SPANS)
end
redis.call('HLEN', JOBS)
redis.call('LLEN', WAKE)
redis.call('HLEN', STATS)
redis.call('ZCARD', DEAD)
for _, list in ipairs({HIGH, NORMAL, LOW, SUSPECT}) do
  redis.call('LLEN', list)
end
-- It would count a crash each time it is tried again.
if redis.acl_check_cmd then
  for _, command in ipairs({{'HDEL', INFLIGHT, ''}, {'HSET', JOBS, '', ''}, {'LPUSH', WAKE, ''}, {'HINCRBY', STATS, '', 1},
    {'ZADD', DEAD, 0, ''}, {'ZRANGE', DEAD, 0, 0}, {'ZREM', SESSIONS, ''}, {'HSTRLEN', JOBS, ''}, {'HGET', JOBS, ''}}) do
    if not redis.acl_check_cmd(unpack(command)) then
      return redis.error_reply('NOPERM signalbox: the user is not permitted the command ' .. command[1])
    end
  end
end

-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('HDEL', INFLIGHT, '')

local lists = {['0'] = HIGH, ['1'] = NORMAL, ['2'] = LOW}
local limits = retention(SETTINGS, {tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])})
local most, details = tonumber(ARGV[8]), ARGV[9] == '1'
local room, done, crashed = most, 0, 0
local reclaimed, dead, lost = {}, {}, {}
local records, gone, unmarked, pushed = {}, {}, {}, {}

local function tell(list, id, token, record, mark)
  list[#list + 1] = id
  list[#list + 1] = token
  list[#list + 1] = record
  list[#list + 1] = mark
end

local seen = {}
for i, id in ipairs(ids) do
  if held[i] == ARGV[9 + 2 * i] and not seen[id] then
    local size = redis.call('HSTRLEN', JOBS, id)
    if size > room and #gone > 0 then
      break
    end
    room = room - size
    seen[id] = true
    gone[#gone + 1] = id
    local token = string.match(held[i], '^%d+') or '0'
    local of, mark = string.match(marks[i] or '', '^(%d+) (.*)$')
    if of ~= token then
      mark = ''
    end
    local record = redis.call('HGET', JOBS, id)
    local dies = false
    if record then
      local crashes = has_header(record) and math.min(string.byte(record, 3) + 1, 255)
      if crashes then
        record = string.sub(record, 1, 2) .. string.char(crashes) .. string.sub(record, 4)
        crashed = crashed + 1
        dies = crashes >= tonumber(ARGV[3])
      end
      if dies then
        retain(DEAD, 'dead_bytes', JOBS, STATS, limits, now, id, record .. ARGV[4])
        count(STATS, 'dead', 1)
        tell(dead, id, token, record, mark)
      else
        if crashes then
          records[#records + 1] = id
          records[#records + 1] = record
        end
        local list = crashes and crashes >= 2 and SUSPECT or lists[string.sub(record, 2, 2)] or NORMAL
        pushed[list] = pushed[list] or {}
        table.insert(pushed[list], id)
        reclaimed[#reclaimed + 1] = id
        if details and size <= most then
          tell(lost, id, token, record, mark)
        end
      end
    end
    if marks[i] and (dies or not record or mark == '') then
      unmarked[#unmarked + 1] = id
    end
  end
  done = i
end

if #records > 0 then
  redis.call('HSET', JOBS, unpack(records))
end
for list, members in pairs(pushed) do
  redis.call('LPUSH', list, unpack(members)) -- the oldest is pushed last, so that it stands first
end
if crashed > 0 then
  count(STATS, 'crashed', crashed)
end
if #unmarked > 0 then
  redis.call('HDEL', SPANS, unpack(unmarked))
end
if #gone > 0 then
  redis.call('HDEL', INFLIGHT, unpack(gone))
end
local left = redis.call('HLEN', INFLIGHT)
if left == 0 then
  redis.call('ZREM', SESSIONS, ARGV[2])
end
if #reclaimed > 0 and held_back == '' then
  wake_one(WAKE)
end
return {'ok', left, now, done, reclaimed, dead, lost}
