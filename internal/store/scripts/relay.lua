-- Puts the jobs of a batch of an outbox in. Each shard of an outbox numbers its batches. Its lane in Redis has the number of the last one.
-- The call names the batch that must be the last one. So each batch is put in once, also if it is sent several times, and never after a batch that the caller doesn't know.
-- The lane has no expiry. It gets one when the outbox is forgotten, and loses it when a batch is put in before that.
--
-- KEYS: those of enqueue.lua; LANE is the outbox's. All of them, in every call
-- ARGV: 1 call: protocol, ' ', number of the batch, ' ', its nonce, ' ', number of the last batch, ' ', its nonce, ' ', mode.
--       A nonce has 1 to 64 of the characters 0-9a-z, and is drawn anew for each batch. '0 0' stands for no batch: the lane is missing. The mode is one of
--       'p' puts the jobs in, if the queue has room for all of them. A batch is never put in in part: a batch's name stands for one list of jobs, also when a late
--           call puts it in once more after Redis has gone back
--       'a' puts the jobs in, and the queue's maximum length doesn't count: Redis had the batch and has lost it
--       'v' makes the batch void: there are no jobs, and a later call with 'p' or 'a' for it puts none in. In the lane, and as the last batch of a later call, its
--           nonce has a 'v' at the end then. So nonces of batches don't end with 'v'
--       Then for each job, 1 to 1000 of them, what enqueue.lua has. None if the mode is 'v'
-- Reply: {'ok', time in us, outcomes, met, new}
--        outcomes, met, new: as of enqueue.lua; also if the same call was made before. Outcomes is empty for 'v'
--        {'void'}  the batch was made void before, and this call isn't to make it so
--        {'done'}  this call is to make the batch void, but its jobs were put in before
--        {'full', room}  the queue has no room for all of the jobs, but for so many, which may be 0 or less. Nothing was done
--        {'other', last, nonce}  the lane has another last batch; 0 and '0' if it is missing. Nothing was done
-- Errors: those of enqueue.lua

local LANE, JOBS, DUE, IDLE, STATS, CRON, HIGH, NORMAL, LOW, DEAD, CANCELLED, NOTES, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, UNIQUE, WINDOWS, EXPIRES = unpack(KEYS)
local fixed = 1 -- the number of arguments before those of the jobs
local call = unpack(ARGV, 1, fixed)

local n = math.floor((#ARGV - fixed) / 4)
local protocol, seq, nonce, before, bnonce, mode = string.match(call or '', '^(%d+) (%d+) ([0-9a-z]+) (%d+) ([0-9a-z]+) ([pav])$')
local void = mode == 'v'
if not seq or #seq > 15 or #before > 15 or #protocol > 3 or #nonce > 64 or #bnonce > 65 or string.find(nonce, 'v$') or tonumber(before) >= tonumber(seq)
  or #ARGV ~= fixed + 4 * n or n > 1000 or void ~= (n == 0) then
  return invalid('the arguments are not those of a batch of 1 to 1000 jobs')
end
seq, before = tonumber(seq), tonumber(before)

local last = redis.pcall('GET', LANE)
if type(last) == 'table' then
  return last -- an error of Redis; nothing was done
end
local lseq, lnonce = 0, '0'
if last then
  local number, name, kind, outcomes, others = string.match(last, '^(%d+) ([0-9a-z]+) ([pv])(%w*) ?(.*)$')
  if not number or #number > 15 then
    return invalid('the lane of the outbox has a text that is not its own: is another program writing to this queue?')
  end
  lseq, lnonce = tonumber(number), name
  if seq == lseq and (lnonce == nonce or lnonce == nonce .. 'v') then
    if kind == 'v' then
      return void and {'ok', clock(), {}} or {'void'}
    elseif void then
      return {'done'}
    end
    return reply_again(outcomes, others)
  end
end
if lseq ~= before or lnonce ~= bnonce then
  return {'other', lseq, lnonce}
end
local denied = denied_enqueue()
if denied then
  return denied
end
if void then
  local withheld = read_settings(SETTINGS, STATS, protocol)
  if tonumber(withheld) then
    return other_layout(withheld, protocol)
  end
  redis.call('SET', LANE, digits(seq) .. ' ' .. nonce .. 'v v')
  return {'ok', clock(), {}}
end

local intake, found, special = judge_call(ARGV, n, protocol, mode == 'p')
if not intake then
  return found -- an error
end
local outcomes = intake.outcomes
local outcome = table.concat(outcomes)
if string.find(outcome, 'n', 1, true) then
  return {'full', found.room}
end
local anew = write_call(found, intake, special)
local met = special and special.uniques and special.uniques.met or nil
redis.call('SET', LANE, digits(seq) .. ' ' .. nonce .. ' p' .. outcome .. (met and ' ' .. table.concat(met, ' ') or ''))
local alike = n == 1 or outcome == string.rep(outcomes[1], n)
return {'ok', intake.now, alike and {outcomes[1]} or outcomes, anew and (met or {}) or met, anew and 'new' or nil}
