-- Does one thing to each of some jobs, if the job is in a state that the thing can be done to.
--
-- KEYS, ARGV: as named below, then in KEYS inflight:<session> of each session
--       protocol: the newest layout that the caller knows
--       verb: 'cancel', 'archive' (it is dead), 'delete', 'run' (at the time due), 'class' (change the priority), 'edit' (the record alone), 'hold' (the job is
--       being moved to another queue: it waits in DUE at the time due, due_when_held, and its record says in which state it was)
--       states: for which the call is, each with a space before and behind it
--       due: time in us, '' means the present; class: '0', '1', '2', for 'class'
--       why, mark: for 'cancel' and 'archive': bytes to append to the record of a job that waits; of one that runs, what CANCELS has behind the
--       token
--       keep_jobs, keep_bytes, keep_us: as in claim.lua; inflight, channels: what stands before a session in the name of its key
--       and of its channel
--       budget: the call does no more jobs once it has cost that much: a unit is what Redis needs to look at an entry of a list
--       then for each job: id: its ID; digest: SHA-1 of the record that it must have, '' for any; edited: the record that it gets, '' for none
-- Reply: {'ok', time in us, answers}
--        answers: one for each of the jobs that the call got to, from the first on: 'gone', if there is no such job; or a word and the job's state: 'done';
--        'not', if the call isn't for the state; 'changed', if the record has another digest; 'lost', if the job is in no place; 'failed', if the record has
--        no header, and so no priority; 'unique', if the job would run again, and another one has its unique key; 'flow', if the job is of a flow, and so
--        can't be moved, or if it would run again, and its flow was cancelled, or it waited for what can't come any more. But for 'done' nothing was changed
--        {'again'}  there is a session that isn't in KEYS; nothing was done
-- Errors: those of Redis, and 'NOPERM signalbox: ...', or 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local SESSIONS, JOBS, DUE, IDLE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, CANCELS, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, UNIQUE, WINDOWS, EXPIRES, FLOWS, AWAITING, FLOWNOTES, FLOWTIMES, ADDED = unpack(KEYS)
local first_session = 27 -- of KEYS
local fixed = 13 -- arguments before those of the jobs
local protocol, verb, states, due, class, why, mark, keep_jobs, keep_bytes, keep_us, inflight, channels, budget = unpack(ARGV, 1, fixed)

-- Returns 'done' if a verb may do its work on a job, else the word of the answer.
local function verdict(job, verb, states, digest, now, ends)
  if not string.find(states, ' ' .. job.state .. ' ', 1, true) then
    return 'not'
  elseif digest ~= '' and digest ~= redis.sha1hex(job.record) then
    return 'changed'
  elseif verb == 'class' and not has_header(job.record) then
    return 'failed'
  elseif verb == 'run' and job.ended and key_taken(job.id, job.record, now) then
    return 'unique'
  elseif verb == 'hold' and links_of(job.record) or verb == 'run' and job.ended and flow_refuses(ends, job.record) then
    return 'flow'
  end
  return 'done'
end

local withheld, _, maximum = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
check_keys()
local _, all = session_keys(first_session, inflight)
if not all then
  return {'again'}
end
-- A user who lacks one of these rights would lose jobs between two places.
local denied = redis.acl_check_cmd and denied_command({
  {'ZREM', SESSIONS, ''}, {'HGET', JOBS, ''}, {'HSET', JOBS, '', ''}, {'HDEL', JOBS, ''}, {'HSTRLEN', JOBS, ''}, {'ZSCORE', DUE, ''},
  {'ZADD', DUE, '0', ''}, {'ZRANGE', DUE, '0', '0'}, {'HINCRBY', STATS, '', '1'}, {'LPOS', HIGH, ''}, {'LREM', HIGH, '1', ''},
  {'RPUSH', HIGH, ''}, {'HSET', CANCELS, '', ''}, {'ZADD', CANCELLED, '0', ''}, {'ZREM', DEAD, ''}, {'HDEL', NOTES, ''},
})
if denied then
  return redis.error_reply('NOPERM signalbox: the Redis user may not run ' .. denied .. ', which acting on jobs needs')
end
local now = clock()
due = tonumber(due) or now
local acts = new_acts(now, withheld, new_ends(now, false, keep_jobs, keep_bytes, keep_us))
local full = full_at(maximum)

-- When Redis is out of memory it still permits this, and with it all that follows.
redis.call('ZREM', SESSIONS, '')

local answers = {}
for i = fixed + 1, #ARGV, 3 do
  local id, digest, edited = unpack(ARGV, i, i + 2)
  local job, answer = find_job(id, first_session), 'gone'
  if job then
    local word, found = verdict(job, verb, states, digest, now, acts.ends), true
    local record = edited ~= '' and edited or job.record
    if word == 'done' then
      if verb == 'cancel' then
        found = cancel_job(acts, job, why, mark)
      elseif verb == 'archive' then
        found = job.state == 'dead' or end_waiting(acts, job, 'dead', why)
      elseif verb == 'delete' then
        found = delete_job(acts, job)
      elseif verb == 'edit' then
        rewrite(acts, job, record)
      elseif verb == 'run' then
        found = run_job(acts, job, record, due)
      elseif verb == 'class' then
        found = prioritise(acts, job, class)
      else
        found = hold_job(acts, job, record, due)
      end
    end
    answer = (found and word or 'lost') .. ' ' .. job.state
    acts.cost = acts.cost + 1500 + math.floor(#job.record / 64) + 25 * (#KEYS - first_session)
  end
  answers[#answers + 1] = answer
  acts.cost = acts.cost + 20
  if acts.cost > tonumber(budget) then
    break
  end
end

turn_flows(acts)
end_acts(acts)
tell_cancelled(acts, inflight, channels)
tell_room(full)
return {'ok', now, answers}
