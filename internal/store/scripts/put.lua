-- Puts jobs into a queue with their records as they are: those of a file, or of another queue. Or takes jobs that are held to another
-- place. A job that is held is due at due_when_held, which no other job is: no worker gets it.
--
-- KEYS, ARGV: as named below
--       protocol: the newest layout that the caller knows
--       dry: '1': nothing is changed, and the answers are those of a call that changes
--       keep_jobs, keep_bytes, keep_us: as in claim.lua
--       then for each job: id, digest, state, us, record, move
--       id: the job's ID; record: the bytes that JOBS has for it then, '' for 'gone'
--       digest: '' for a new job, whose ID must be free. Else the job must be held, and its record must have this SHA-1
--       state: 'ready', 'scheduled', 'dead', 'cancelled', 'held', 'waits' for one that is held and hadn't ended, or 'gone' to delete the job
--       us: when it is due, or has ended; the record has the time when it is due, too
--       move: names of moves with spaces between; each leaves a receipt, which is kept for 30 days. Behind a '?', of a copy that is put in, none may
--       have one. Behind a '!' stands one name, of a job of another system: it may have none, and leaves one. With the state 'gone' it leaves that with a '-' in
--       front instead: the move is given up, and no job is put in. Else ''
-- Reply: {'ok', time in us, answers}
--        answers: one for each job: 'done'; 'taken', if the ID isn't free; 'gone', if there is no such job;
--        'changed', if it isn't held, has another record, or its move has a receipt; 'gone', if its move was given up; 'unique', if another job has the
--        unique key that a new one must have. But for 'done' nothing was changed
-- Errors: those of Redis, and 'NOPERM signalbox: ...', or 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local SESSIONS, JOBS, DUE, IDLE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, UNIQUE, WINDOWS, EXPIRES, RECEIPTS = unpack(KEYS)
local fixed = 5 -- arguments before those of the jobs
local protocol, dry, keep_jobs, keep_bytes, keep_us = unpack(ARGV, 1, fixed)

local withheld, _, maximum, begins = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
check_keys()
-- A user who lacks one of these rights would lose jobs between two places.
local denied = redis.acl_check_cmd and denied_command({
  {'ZREM', SESSIONS, ''}, {'HGET', JOBS, ''}, {'HSET', JOBS, '', ''}, {'HDEL', JOBS, ''}, {'HSTRLEN', JOBS, ''}, {'ZSCORE', DUE, ''},
  {'ZADD', DUE, '0', ''}, {'ZREM', DUE, ''}, {'ZRANGE', DUE, '0', '0'}, {'HINCRBY', STATS, '', '1'}, {'RPUSH', HIGH, ''},
  {'ZADD', DEAD, '0', ''}, {'ZADD', CANCELLED, '0', ''}, {'HDEL', NOTES, ''},
})
if denied then
  return redis.error_reply('NOPERM signalbox: the Redis user may not run ' .. denied .. ', which putting jobs in needs')
end
local now = clock()
local acts = new_acts(now, withheld, new_ends(now, false, keep_jobs, keep_bytes, keep_us))
local full = full_at(maximum)
local adds = false
for i = fixed + 1, #ARGV, 6 do
  local _, digest = unpack(ARGV, i, i + 1)
  adds = adds or digest == ''
end
if not adds and dry ~= '1' then
  -- When Redis is out of memory it still permits this, and with it all that follows.
  redis.call('ZREM', SESSIONS, '')
end

local answers, judged = {}, {}
local receipts = 0
for i = fixed + 1, #ARGV, 6 do
  local id, digest, state, us, record, move = unpack(ARGV, i, i + 5)
  local old, answer = redis.call('HGET', JOBS, id), 'done'
  local copies = string.match(move, '^%?(.*)')
  for name in string.gmatch(copies or '', '%S+') do
    answer = redis.call('ZSCORE', RECEIPTS, name) and 'changed' or answer -- a call that came late: a copy was let go before
  end
  local arrives = string.match(move, '^!(.*)')
  if arrives then
    answer = redis.call('ZSCORE', RECEIPTS, arrives) and 'changed' or redis.call('ZSCORE', RECEIPTS, '-' .. arrives) and 'gone' or answer
    move = (state == 'gone' and '-' or '') .. arrives
  end
  local given_up = arrives and state == 'gone'
  if answer ~= 'done' or given_up then
    -- nothing is taken for it
  elseif digest == '' then
    answer = (old or judged[id]) and 'taken' or 'done'
    if answer == 'done' and (state == 'ready' or state == 'scheduled' or state == 'waits') and not give_key(id, record, now, dry == '1') then
      answer = 'unique'
    end
  elseif not old then
    answer = 'gone'
  elseif digest ~= redis.sha1hex(old) or tonumber(redis.call('ZSCORE', DUE, due_member(old, id)) or 0) ~= due_when_held then
    answer = 'changed'
  end
  judged[id] = true
  answers[#answers + 1] = answer
  if answer == 'done' and dry ~= '1' then
    begin(SETTINGS, STATS, begins)
    begins = false
    if not given_up then
      place_job(acts, id, old, state, tonumber(us), record)
    end
    if not copies then
      for name in string.gmatch(move, '%S+') do
        redis.call('ZADD', RECEIPTS, digits(now), name)
        receipts = receipts + 1
      end
    end
  end
end
end_acts(acts)
if receipts > 0 then
  drop_receipts(now, 2 * receipts)
end
tell_room(full)
return {'ok', now, answers}
