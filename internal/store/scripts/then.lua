-- Completes a job whose handler has asked for follow-ups, and puts these in: both, or neither. The token of the delivery is compared first. So a call that comes again, a
-- late copy of it, and a delivery that is over put nothing in.
--
-- The call is one of a lane of claim.lua, in place of a claim, and leaves in it what a claim leaves that got no job. The job ends before the follow-ups are
-- judged: so they may have its ID, and a unique key that it had until its end. They are put in whatever room the queue has, and when Redis is out of memory:
-- with them a job ends.
--
-- KEYS, ARGV: as named below; LANE and INFLIGHT are those of claim.lua
--       protocol: the newest layout that the caller knows
--       seq, session, keep_jobs, keep_bytes, keep_us, answered: as in claim.lua
--       id, token: of the delivery: its job's ID, and its fencing token
--       keep: what is appended to the record of the job, if the settings or its record say that it is kept; or '' to delete the job
--       Then for each follow-up, 1 to 500 of them, what enqueue.lua has for a job that is of no cron entry
-- Reply: {'ok', time in us, outcome, alive, known, follow-ups}
--        outcome: 'completed'; 'cancelled': the job was cancelled while it ran, and ended so; 'refused': the delivery was superseded. With the last two no follow-up was put in
--        alive, known: as in claim.lua
--        follow-ups: a string with an outcome for each, as of enqueue.lua; '' if none was put in, and for a call that was made before
--        {'stale'}  a later call of this lane was seen; nothing was done
-- Errors: those of enqueue.lua, all before the first write

local LANE, INFLIGHT, SESSIONS, JOBS, DUE, IDLE, STATS, CRON, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, CANCELS, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, RUNNING, UNIQUE, WINDOWS, EXPIRES, FLOWS, AWAITING, FLOWNOTES, FLOWTIMES, ADDED = unpack(KEYS)
local fixed = 10 -- arguments before those of the follow-ups
local protocol, seq, session, id, token, keep, keep_jobs, keep_bytes, keep_us, answered = unpack(ARGV, 1, fixed)
seq, answered = tonumber(seq), tonumber(answered)

local now = clock()
local lseq, lfirst, _, lrefused, loverruled = string.match(redis.call('GET', LANE) or '', '^(%d+) (%d+) (%d+) ([%d,]*) ?([%d,]*)$')
lseq = tonumber(lseq)
if lseq and seq < lseq then
  return {'stale'}
end
-- As in claim.lua: the session of a worker that had an answer which Redis doesn't know any more ends.
local forgot = answered > 0 and (not lseq or lseq < answered) or lseq == seq and lfirst == '2'
local expiry = redis.call('ZSCORE', SESSIONS, session)
local alive = expiry and tonumber(expiry) > now and not forgot and 1 or 0
if lseq == seq then
  return {'ok', now, lrefused ~= '' and 'refused' or loverruled ~= '' and 'cancelled' or 'completed', alive, lseq, ''}
end

-- All that can be an error is found out before the job ends.
check_keys()
local withheld, _, maximum = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
local jobs = {protocol} -- as ARGV of enqueue.lua
for i = fixed + 1, #ARGV do
  jobs[#jobs + 1] = ARGV[i]
end
local n = math.floor((#jobs - 1) / 4)
if n < 1 or n > 500 or #jobs ~= 1 + 4 * n then
  return invalid('the arguments are not those of 1 to 500 follow-ups')
end
local request, fault = read_request(jobs, n, now)
if not request then
  return fault
elseif request.entries then
  return invalid('a follow-up is of a cron entry')
end
local denied = denied_enqueue()
if denied then
  return denied
end

local delivery = redis.call('HGET', INFLIGHT, id)
local outcome, fates = 'refused', ''
redis.call('HDEL', INFLIGHT, '') -- permitted out of memory, and with it all that follows
if owns(delivery, token) then
  local full = full_at(maximum)
  local ends = new_ends(now, false, keep_jobs, keep_bytes, keep_us)
  outcome = 'completed'
  if is_marked(delivery) then
    outcome = 'cancelled'
    finish_marked(ends, id, redis.call('HGET', CANCELS, id) or '', true)
  elseif keep ~= '' then
    finish_kept(ends, id, keep)
  else
    finish(ends, 'completed', {id})
  end
  redis.call('HDEL', INFLIGHT, id)
  local woken = leave_all({id, delivery}, ends, outcome == 'completed' and outcome or 'deleted')
  if redis.call('HEXISTS', RUNNING, session) == 1 then
    local left = redis.call('HLEN', INFLIGHT)
    if left > 0 then
      redis.call('HSET', RUNNING, session, left)
    else
      redis.call('HDEL', RUNNING, session)
    end
    woken = true -- a job that waits may run in its place
  end
  if woken and withheld == '' then
    wake_one(IDLE)
  end
  if outcome == 'completed' then
    local intake, found, special = judge_call(jobs, n, protocol, false)
    write_call(found, intake, special)
    now, fates = intake.now, table.concat(intake.outcomes) -- the follow-ups go by that time
  end
  if ends.linked then
    local acts = new_acts(now, withheld, ends)
    turn_flows(acts)
    end_acts(acts)
  end
  tell_room(full)
end
redis.call('SET', LANE, digits(seq) .. ' ' .. (forgot and '2' or '1') .. ' ' .. (forgot and '1' or '0') .. ' ' .. (outcome == 'refused' and '1' or '')
  .. (outcome == 'cancelled' and ' 1' or ''), 'PX', 3600000)
return {'ok', now, outcome, alive, lseq or 0, fates}
