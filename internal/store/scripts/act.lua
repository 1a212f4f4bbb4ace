-- Does one thing to each of some jobs, if the job is in a state that the thing can be done to.
--
-- KEYS, ARGV: as named below, then in KEYS inflight:<session> of each session
--       verb: 'cancel', 'delete', 'run' (at the time due), 'class' (change the priority), 'edit' (the record alone), 'hold' (the job is
--       being moved to another queue: it waits in DUE at the time due, held_until, and its record says in which state it was)
--       states: for which the call is, each with a space before and behind it
--       due: time in us, '' means the present; class: '0', '1', '2', for 'class'
--       why, mark: for 'cancel': bytes to append to the record of a job that waits; of one that runs, what CANCELS has behind the
--       token
--       keep_jobs, keep_bytes, keep_us: as in claim.lua; inflight, channels: what stands before a session in the name of its key
--       and of its channel
--       budget: the call does no more jobs once it has cost that much: a unit is what Redis needs to look at an entry of a list
--       then for each job: id, digest of the record that it must have ('' for any), and the record that it gets ('' for none)
-- Reply: {'ok', time in us, answers}: an answer for each of the jobs that the call got to, from the first on: 'gone', if there is no
--        such job; or a word and the job's state: 'done'; 'not', if the call isn't for the state; 'changed', if the record has
--        another digest; 'lost', if the job is in no place; 'failed', if the record has no header, and so no priority; 'unique', if the
--        job would run again, and another one has its unique key. But for 'done' nothing was changed
--        {'again'}  there is a session that isn't in KEYS; nothing was done
-- Errors: those of Redis, and 'NOPERM signalbox: ...', or 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local SESSIONS, JOBS, DUE, IDLE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, CANCELS, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, UNIQUE, WINDOWS, EXPIRES = unpack(KEYS)
local first_session = 22 -- of KEYS
local held_until = 9007199254740992 -- when a job is due that is held: its state is 'held' here
local fixed = 13 -- arguments before those of the jobs
local protocol, verb, states, due, class, why, mark, keep_jobs, keep_bytes, keep_us, inflight, channels, budget = unpack(ARGV, 1, fixed)

-- include: clock, digits, standing, denied_command, retention, send, wake_one

local held_back, _, maximum = standing(SETTINGS, STATS, protocol)
if tonumber(held_back) then
  return redis.error_reply('LAYOUT ' .. held_back .. ' signalbox: the layout of the queue is not one that protocol ' .. protocol .. ' knows')
end
-- include: act_read, queue_length
local no_room = maximum and queue_length() >= maximum -- the queue has as many jobs as it may have, or more
-- include: note, finish, ready, count, forget, has_header, class_of, place_of, is_marked, unlist, rerun, group_of, key_taken, free_key_of

-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('ZREM', SESSIONS, '')

local answers, told = {}, {} -- told: for the workers of jobs that run, by the number of the session's key
local woken, grown, cost = false, 0, 0
local g -- groups, once a job has one
for i = fixed + 1, #ARGV, 3 do
  local id, digest, edited = unpack(ARGV, i, i + 2)
  local record, answer = redis.call('HGET', JOBS, id), 'gone'
  if record then
    local state, place, held = place_of(id, class_of(record))
    if state == 'scheduled' and held == held_until then
      state = 'held'
    end
    answer = 'done ' .. state
    if not string.find(states, ' ' .. state .. ' ', 1, true) then
      answer = 'not ' .. state
    elseif digest ~= '' and digest ~= redis.sha1hex(record) then
      answer = 'changed ' .. state
    elseif verb == 'class' and not has_header(record) then
      answer = 'failed ' .. state
    elseif verb == 'run' and string.find(' dead cancelled completed ', ' ' .. state .. ' ', 1, true) and key_taken(id, record) then
      answer = 'unique ' .. state
    elseif verb == 'cancel' and state == 'running' then
      -- include: act_mark
    elseif not (verb == 'cancel' and state == 'cancelled') then -- else it is so
      -- include: act_move
    end
    cost = cost + 1500 + math.floor(#record / 64) + 25 * (#KEYS - first_session)
  end
  answers[#answers + 1] = answer
  cost = cost + 20
  if cost > tonumber(budget) then
    break
  end
end

if largest and grown > largest then
  redis.call('HSET', STATS, 'largest', grown)
end
if g then
  woken = g.save() and held_back == '' or woken
end
if woken then
  wake_one(IDLE)
end
-- include: act_tell
if no_room then
  -- include: tell_room
  tell_room(maximum)
end
return {'ok', now, answers}
