-- Puts jobs in. A live job is one that is ready, scheduled or running. If a live job has the ID of a new one, the new one is left out.
-- If a job has it that has ended and is kept, the new one replaces it. The job of a cron entry's tick is put in only if nobody enqueued that
-- tick, or a later one of the entry, before, and if the entry isn't paused. The job of an entry that has a policy for jobs that overlap is
-- put in only if the policy allows it.
--
-- KEYS: as named below; HIGH, NORMAL and LOW are the lists ready:high, ready:normal, ready:low.
-- ARGV: 1 call: protocol, ' ', sequence number of the call in its lane. A caller that knows this server's clock may add ' ' and
--       how far its own reckoning of the time is ahead of that clock (us, with '-' in front if it is behind). Then ticks go by the
--       caller's reckoning, and an entry's last tick that is more than 10 s ahead of it is ignored.
--       Then for each job, 1 to 1000 of them: id, class, when, envelope
--       id: the job's ID, 1 to 200 bytes; envelope: what stands in its record behind header and extras, see docs/wire.md
--       class: '0' high, '1' normal, '2' low; then '!' if the job must never replace another one; then '~' if its payload isn't
--       JSON, so that its record is of version 2; then '*' if a job that has the unique key, and waits for its start, is to get what this one
--       has, and how late after its enqueue it is due then at most (us, in decimal digits; if it isn't there, any time will do); then, if the
--       job has extras, '+', a byte of flags that isn't 0, and up to 1000 bytes of extras. If the flags are odd the job is of a group, and the
--       extras begin with a byte, the length of its key, and the key: 's' for a serial one, 'g' for another, and its name. If the flags have 4,
--       the job has a unique key: see docs/wire.md, "Unique keys"
--       when: '' now, '+us' after that delay, '@us' at that time, '=us entry' for the tick of that cron entry at that time,
--       '=us entry plan bound' if the tick is of that plan (see docs/wire.md, "Plans"), and may be late by bound (us) if it is made up for;
--       '=us entry plan bound overlap' if the entry has a policy for a job that comes while another of the entry is live: 's' leaves it
--       out, 'q' leaves it out if another one waits, and needs a serial group, 'c' puts it in, and the caller cancels the others; '&entry overlap' for a job
--       of the entry now, which belongs to no tick; us in decimal digits
-- Reply: {'ok', time in us, outcomes, met, new}
--        outcomes: a list with an outcome for each job, or with one outcome if it is the same for all:
--          put in: '1' new, 'D' replaced a dead job, 'C' replaced a cancelled job, 'F' replaced a completed job,
--          'r' replaced the last tick of its entry, which was in the future
--          left out because the job with this ID is: '0' ready or running, 's' scheduled, 'd' dead, 'c' cancelled, 'f' completed
--          left out because its tick: 't' was enqueued before, 'e' is in the future of this server, 'l' is more than 5 s ago,
--          'p' passes without a job, since its entry is paused, 'x' is of another plan than the one in force
--          'o' left out since a job of its entry is live; its tick, if it has one, passes without a job
--          left out because another job has its unique key: 'u'; 'U' if that one has got what this one has
--          left out because the queue has as many jobs as it may have that haven't ended: 'n'. The job of a
--          tick is put in all the same
--        met: for each 'u' and 'U' the state of that other job, as the outcomes above have it, or 'g' if it is gone; then its ID. If there are outcomes 'n',
--          last: 'n', how many jobs of the queue haven't ended, '/', how many there may be. Not there if there are none of these
--        new: 'new' if no job was put into the queue before, or that isn't known since the call was made before; then met is there, too. The caller registers
--          the queue then, though it may have done so before: the queue may have been removed. Else not there
--        {'stale'}  a later call of this lane was seen; nothing was done
-- Errors, all before the first write: those of Redis, 'ERR signalbox: ...', 'NOPERM signalbox: ...', and
--         'LAYOUT n signalbox: ...' if n, the layout of the queue, is newer than the protocol or older than 3

local LANE, JOBS, DUE, IDLE, STATS, CRON, HIGH, NORMAL, LOW, DEAD, CANCELLED, NOTES, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, UNIQUE, WINDOWS, EXPIRES = unpack(KEYS)
local fixed = 1 -- the number of arguments before those of the jobs
local call = unpack(ARGV, 1, fixed)

local n = (#ARGV - fixed) / 4
local protocol, seq, skew = string.match(call or '', '^(%d+) (%d+) ?(.*)$')
if n < 1 or n > 1000 or n ~= math.floor(n) or not seq or #seq > 15 or #protocol > 3 or (skew ~= '' and not string.find(skew, '^-?%d+$')) then
  return invalid('the arguments are not those of an enqueue of 1 to 1000 jobs')
end
seq = tonumber(seq)

local last = redis.pcall('GET', LANE)
if type(last) == 'table' then
  return last -- an error of Redis; nothing was done
elseif last then
  local lseq, outcomes, others = string.match(last, '^(%d+) (%w*) ?(.*)$')
  lseq = tonumber(lseq)
  if lseq and seq < lseq then
    return {'stale'}
  elseif seq == lseq then
    return reply_again(outcomes, others)
  end
else
  -- A lane's first call checks that the user may run all commands. Otherwise a command could be denied between two writes. Servers other
  -- than Redis may not offer the check.
  local denied = denied_enqueue()
  if denied then
    return denied
  end
end

local intake, found, special = judge_call(ARGV, n, protocol, true, tonumber(skew))
if not intake then
  return found -- an error
end
local outcomes = intake.outcomes
local outcome = table.concat(outcomes)
local anew = write_call(found, intake, special)
local met = special and special.uniques and special.uniques.met or nil
if string.find(outcome, 'n', 1, true) then
  met = met or {}
  met[#met + 1] = 'n' .. digits(found.maximum - found.room + intake.fresh) .. '/' .. digits(found.maximum)
end
if string.find(outcome, '[^e]') then -- if all are 'e', nothing was done: the call can be made again later
  redis.call('SET', LANE, digits(seq) .. ' ' .. outcome .. (met and ' ' .. table.concat(met, ' ') or ''), 'PX', '3600000')
end
local alike = n == 1 or outcome == string.rep(outcomes[1], n)
return {'ok', intake.now, alike and {outcomes[1]} or outcomes, anew and (met or {}) or met, anew and 'new' or nil}
