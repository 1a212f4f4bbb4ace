-- Counts the queue's jobs by state, and finds the job that has waited longest. It writes nothing.
--
-- KEYS: as named below, then inflight:<session> of each session
-- Reply: {'ok', time in us, ready, due, running, dead, cancelled, since, completed, paused, limits, at, held_until, ahead, blocked, named, awaiting}
--        ready, due (scheduled), running, dead, cancelled, completed: how many jobs there are of each state
--        since: since when (us) the longest waiting job could run; -1 if there is none. It looks only at the first job of each
--        ready list, at the first of due, and at the first of each line of a group that may go on, of 1000 lines at most; paused: since when (us); limits: those of the queue, as the
--        settings have them, '' for none; at, held_until: when the queue's rate would have the next job start, and until when the queue is held back, as RATES has them,
--        '' for none; ahead: clock of STATS, by which these times are, or ''; blocked: of the ready jobs, those whose group lets none start, an estimate if
--        more than 1000 lines may go on; named: how many fields LIMITS has; awaiting: jobs that wait for flows
-- Errors: those of Redis.

local JOBS, DUE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, SETTINGS, COMPLETED, LINED, TURNS, LIMITS, RATES, PARKED, AWAITING = unpack(KEYS)
local first_session = 18 -- of KEYS

local now = clock()

local lined, since = redis.call('ZCARD', LINED), -1
local in_lists, blocked = lined, 0
for _, list in ipairs({HIGH, NORMAL, LOW, SUSPECT}) do
  in_lists = in_lists + redis.call('LLEN', list)
  local id = redis.call('LINDEX', list, 0)
  if id then
    local record = redis.call('HGET', JOBS, id)
    since = earlier(since, record and has_header(record) and due_of(record) or nil, now)
  end
end
if lined > 0 then
  blocked, since = blocked_in_lines(lined, since, now)
end
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
since = earlier(since, tonumber(head[2]), now)
local running = 0
for k = first_session, #KEYS do
  running = running + redis.call('HLEN', KEYS[k])
end
local terminal = terminal_states()
return {'ok', now, in_lists, redis.call('ZCARD', DUE), running,
  redis.call('ZCARD', terminal.dead.set), redis.call('ZCARD', terminal.cancelled.set), since,
  redis.call('ZCARD', terminal.completed.set), redis.call('HGET', SETTINGS, 'paused') or '', redis.call('HGET', SETTINGS, 'limits') or '',
  redis.call('ZSCORE', RATES, '') or '', redis.call('ZSCORE', RATES, 'h') or '', redis.call('HGET', STATS, 'clock') or '',
  blocked, redis.call('HLEN', LIMITS), redis.call('ZLEXCOUNT', AWAITING, '[d', '+')} -- of the role 'c' are those that wait no more
