-- Takes back the jobs of a session that expired, to the head of their ready lists, and counts
-- a crash for each. At two crashes a job becomes a suspect, and claim.lua gives no session two
-- of them: so those that crashed for another's fault run apart from it, and complete. At the
-- limit a job is dead.
--
-- KEYS: 1 inflight:<session>, 2 sessions, 3 jobs, 4 wake, 5 stats, 6 dead,
--       7 ready:high, 8 ready:normal, 9 ready:low, 10 ready:suspect, 11 spans
-- ARGV: 1 session, 2 most jobs to take back in this call, 3 crashes at which a job is dead,
--       4 bytes to append to the record of a job that is dead (its last error),
--       5 to 7 as in claim.lua, 8 most bytes of records to return of jobs that run again; 0 for
--       none of them, else those that find no room are left for the next call
-- Reply: {'ok', left, now, reclaimed, dead, lost}: deliveries left to take back; the clock; ids of
--        jobs that run again; id, token, record and mark of each that is dead, one after the
--        other (claim.lua gives no session two jobs that can die here); likewise of those that run
--        again, but for one whose record is larger than all the room. A mark is of the delivery
--        that was lost, or empty: one that an attempt before it left is dropped.
--        {'alive'}  the session was renewed; nothing was done
-- Errors: those of Redis, before the first write.

local now = clock()
local expiry = redis.call('ZSCORE', KEYS[2], ARGV[1])
if expiry and tonumber(expiry) > now then
  return {'alive'}
end
local entries = redis.call('HGETALL', KEYS[1])
redis.call('HLEN', KEYS[3])
redis.call('LLEN', KEYS[4])
redis.call('HLEN', KEYS[5])
redis.call('ZCARD', KEYS[6])
for k = 7, 10 do
  redis.call('LLEN', KEYS[k])
end
local marked = redis.call('HLEN', KEYS[11]) > 0

-- The oldest grant is pushed last, so that it stands first.
local held = {}
for i = 1, #entries, 2 do
  local token = string.match(entries[i + 1], '^%d+') or '0'
  held[#held + 1] = {id = entries[i], token = token, grant = tonumber(token)}
end
table.sort(held, function(a, b)
  return a.grant > b.grant
end)

-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('HDEL', KEYS[1], '')

local lists = {['0'] = KEYS[7], ['1'] = KEYS[8], ['2'] = KEYS[9]}
local limits = {tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])}
local reclaimed, dead, lost = {}, {}, {}
local room = tonumber(ARGV[8])
local details = room > 0

local function mark_of(job)
  if not marked then
    return ''
  end
  local token, span = string.match(redis.call('HGET', KEYS[11], job.id) or '', '^(%d+) (.*)$')
  if token == job.token then
    return span
  end
  redis.call('HDEL', KEYS[11], job.id)
  return ''
end

local function tell(list, job, record, mark)
  list[#list + 1] = job.id
  list[#list + 1] = job.token
  list[#list + 1] = record
  list[#list + 1] = mark
end

for i = 1, math.min(#held, tonumber(ARGV[2])) do
  local job = held[i]
  local record = redis.call('HGET', KEYS[3], job.id)
  local crashes = record and has_header(record) and math.min(string.byte(record, 3) + 1, 255)
  local dies = crashes and crashes >= tonumber(ARGV[3])
  if details and record and not dies and #lost > 0 and #record > room then
    break
  end
  redis.call('HDEL', KEYS[1], job.id)
  if record then
    local mark = mark_of(job)
    if crashes then
      record = string.sub(record, 1, 2) .. string.char(crashes) .. string.sub(record, 4)
      redis.call('HSET', KEYS[3], job.id, record)
      count(KEYS[5], 'crashed', 1)
    end
    if dies then
      retain(KEYS[6], 'dead_bytes', KEYS[3], KEYS[5], limits, now, job.id, record .. ARGV[4])
      count(KEYS[5], 'dead', 1)
      if marked then
        redis.call('HDEL', KEYS[11], job.id)
      end
      tell(dead, job, record, mark)
    else
      local list = crashes and crashes >= 2 and KEYS[10] or lists[string.sub(record, 2, 2)] or KEYS[8]
      redis.call('LPUSH', list, job.id)
      reclaimed[#reclaimed + 1] = job.id
      if details and #record <= room then
        room = room - #record
        tell(lost, job, record, mark)
      end
    end
  elseif marked then
    redis.call('HDEL', KEYS[11], job.id)
  end
end

local left = redis.call('HLEN', KEYS[1])
if left == 0 then
  redis.call('ZREM', KEYS[2], ARGV[1])
end
if #reclaimed > 0 then
  wake_one(KEYS[4])
end
return {'ok', left, now, reclaimed, dead, lost}
