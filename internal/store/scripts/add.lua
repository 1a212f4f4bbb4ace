-- Puts jobs in as members of a flow: those of its producer, or of a member. Both number their jobs, so neither puts one in twice, also from another lane or process.
--
-- KEYS, ARGV: as named below; INFLIGHT is that of the member's session, or of none
--       protocol: the newest layout that the caller knows
--       seq: number of the call in its lane
--       flow: its name, '{', its mark
--       first: how many jobs the producer has given before this call; digest: of all that it has given with this call; both '' for a member
--       id, token: of the delivery of the member: its job's ID, and its fencing token; before: how many jobs it has put in before, in this delivery; all '' for a producer
--       Then for each job, 1 to 950 of them, what enqueue.lua has for a job that is of no cron entry. Its extras have the link
-- Reply: {'ok', time in us, word, outcomes, met}
--        word: 'in'; 'was': the call was made before; or nothing was put in, since 'other': it has given others; 'part': it has given the first ones of the
--        call: then met has how many it has given, and their digest; 'gap': some before the call are missing, or some that the delivery has put in;
--        'none': there is no such flow; 'over': it is over; 'cancelled': it was; 'sealed': it is, and its producer adds no more; 'superseded': the delivery
--        is; 'full': the queue has no room for all of them, so it may be called again: then met has 'n', how many jobs of the queue haven't ended, '/', how
--        many there may be
--        outcomes: a string with an outcome for each job, as of enqueue.lua, or 'w' if the member has put it in before; '' if nothing was put in; met: as of enqueue.lua
--        {'stale'}  a later call of this lane was seen; nothing was done
-- Errors: those of enqueue.lua, all before the first write

local LANE, INFLIGHT, SESSIONS, JOBS, DUE, IDLE, STATS, CRON, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, UNIQUE, WINDOWS, EXPIRES, FLOWS, AWAITING, FLOWNOTES, FLOWTIMES, ADDED = unpack(KEYS)
local fixed = 8 -- arguments before those of the jobs
local protocol, seq, flow, first, digest, id, token, before = unpack(ARGV, 1, fixed)
seq, first, before = tonumber(seq), tonumber(first), tonumber(before)

local now = clock()
local lseq, lword, loutcomes, lmet = string.match(redis.call('GET', LANE) or '', '^(%d+) (%w+) (%w*) ?(.*)$')
lseq = tonumber(lseq)
if lseq and seq < lseq then
  return {'stale'}
elseif lseq == seq then
  return {'ok', now, lword, loutcomes, reply_again(loutcomes, lmet)[4]}
end
local withheld = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
check_keys()
local denied = denied_enqueue() or denied_flow()
if denied then
  return denied
end
local ends = new_ends(now, false, 0, 0, 0)
local f = read_flow(ends, flow)
local word = f and (is_flow(f, 'd') and 'over' or is_flow(f, 'x') and 'cancelled' or id == '' and not is_flow(f, 'u') and 'sealed' or 'in') or 'none'
local added = 0 -- how many of the jobs were put in before
local n = math.floor((#ARGV - fixed) / 4)
local outcomes, met = '', nil
if id ~= '' then
  local known = tonumber((string.match(redis.call('HGET', ADDED, id) or '', '^%d+'))) or 0
  word = owns(redis.call('HGET', INFLIGHT, id), token) and word or 'superseded'
  if word == 'in' and known < before then
    word = 'gap'
  end
  added = math.max(known - before, 0)
elseif f and first + n < f.given then
  word = 'was'
elseif f and first + n == f.given then
  word = digest == f.digest and 'was' or 'other'
elseif f and first < f.given then
  word, met = 'part', {digits(f.given), f.digest}
elseif f and first > f.given then
  word = 'gap'
end
added = math.min(added, n)
if word == 'in' then
  outcomes = string.rep('w', added)
  if added < n then
    local jobs = {protocol} -- as ARGV of enqueue.lua
    for i = fixed + 1 + 4 * added, #ARGV do
      jobs[#jobs + 1] = ARGV[i]
    end
    local intake, found, special = judge_call(jobs, n - added, protocol, true)
    if not intake then
      return found -- an error
    end
    if string.find(table.concat(intake.outcomes), 'n', 1, true) then
      return {'ok', now, 'full', '', {'n' .. digits(found.maximum - found.room) .. '/' .. digits(found.maximum)}}
    end
    write_call(found, intake, special)
    outcomes, met = outcomes .. table.concat(intake.outcomes), special and special.uniques and special.uniques.met or nil
    f.total, f.open = f.total + intake.fresh, f.open + intake.fresh
    forget_replaced(special)
  end
  if id ~= '' and added < n then
    redis.call('HSET', ADDED, id, digits(before + n) .. ' ' .. flow)
  elseif id == '' then
    f.given, f.digest = first + n, digest
    f.since = now
  end
  redis.call('HSET', FLOWS, f.name, flow_text(f))
end
redis.call('SET', LANE, digits(seq) .. ' ' .. word .. ' ' .. outcomes .. (met and ' ' .. table.concat(met, ' ') or ''), 'PX', '3600000')
return {'ok', now, word, outcomes, met or {}}
