-- Puts jobs into a queue: those of a file, or of another queue. Their records stay as they are. It also ends a hold: a job that is held gets another
-- place. A job that is held is due at held_until, and no other job is. So no worker gets it.
--
-- KEYS, ARGV: as named below
--       dry: '1': nothing is changed, and the answers are those of a call that changes
--       keep_jobs, keep_bytes, keep_us: as in claim.lua
--       then for each job: id, digest, state, us, record, move
--       digest: '' for a new job, whose ID must be free. Else the job must be held, and its record must have this SHA-1
--       state: 'ready', 'scheduled', 'dead', 'cancelled', 'held', 'waits' for one that is held and hadn't ended, or 'gone' to delete the job
--       us: when it is due, or has ended; the record has the time when it is due, too
--       move: names of moves with spaces between; each leaves a receipt, which is kept for 30 days. Behind a '?', of a copy that is put in, none may
--       have one. Else ''
-- Reply: {'ok', time in us, answers}: an answer for each job. 'done'; 'taken', if the ID isn't free; 'gone', if there is no such job;
--        'changed', if it isn't held, has another record, or is a copy whose move has a receipt; 'unique', if another job has the unique key that a new one must have. But for 'done'
--        nothing was changed
-- Errors: those of Redis, and 'NOPERM signalbox: ...', or 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local SESSIONS, JOBS, DUE, IDLE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, UNIQUE, WINDOWS, EXPIRES, RECEIPTS = unpack(KEYS)
local held_until = 9007199254740992 -- 2^53; enqueue.lua allows one less
local fixed = 5 -- arguments before those of the jobs
local protocol, dry, keep_jobs, keep_bytes, keep_us = unpack(ARGV, 1, fixed)

-- include: clock, digits, standing, begin, denied_command, retention, wake_one

local held_back, _, maximum, begins = standing(SETTINGS, STATS, protocol)
if tonumber(held_back) then
  return redis.error_reply('LAYOUT ' .. held_back .. ' signalbox: the layout of the queue is not one that protocol ' .. protocol .. ' knows')
end
-- include: put_read, queue_length
local no_room = maximum and queue_length() >= maximum -- the queue has as many jobs as it may have, or more
-- include: note, own_age, retain, finish, ready, due_member, key_taken, free_key_of

local answers, judged = {}, {}
local g -- groups, once a job has one
local receipts = 0
for i = fixed + 1, #ARGV, 6 do
  local id, digest, state, us, record, move = unpack(ARGV, i, i + 5)
  local old, answer = redis.call('HGET', JOBS, id), 'done'
  local copies = string.match(move, '^%?(.*)')
  for name in string.gmatch(copies or '', '%S+') do
    answer = redis.call('ZSCORE', RECEIPTS, name) and 'changed' or answer -- a call that came late: a copy was let go before
  end
  if answer == 'changed' then
    -- nothing is taken for it
  elseif digest == '' then
    answer = (old or judged[id]) and 'taken' or 'done'
    if answer == 'done' and (state == 'ready' or state == 'scheduled' or state == 'waits') then
      -- include: put_key
    end
  elseif not old then
    answer = 'gone'
  elseif digest ~= redis.sha1hex(old) or tonumber(redis.call('ZSCORE', DUE, due_member(old, id)) or 0) ~= held_until then
    answer = 'changed'
  end
  judged[id] = true
  answers[#answers + 1] = answer
  if answer == 'done' and dry ~= '1' then
    begin(SETTINGS, STATS, begins)
    begins = false
    -- include: put_place
    if not copies then
      for name in string.gmatch(move, '%S+') do
        redis.call('ZADD', RECEIPTS, digits(now), name)
        receipts = receipts + 1
      end
    end
  end
end
if largest and grown > largest then
  redis.call('HSET', STATS, 'largest', grown)
end
if g then
  g.save()
end
if receipts > 0 then
  -- include: drop_receipts
  drop_receipts(now, 2 * receipts)
end
if woken then
  wake_one(IDLE)
end
if no_room then
  -- include: tell_room
  tell_room(maximum)
end
return {'ok', now, answers}
