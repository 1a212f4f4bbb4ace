-- Counts the queue's jobs by state, and finds the job that has waited longest. It writes nothing.
--
-- KEYS: as named below, then inflight:<session> of each session
-- Reply: {'ok', time in us, ready, due, running, dead, cancelled, since, completed, paused, limits, at, held, ahead}
--        since: since when (us) the longest waiting job could run; -1 if there is none. It looks only at the first job of each
--        ready list, at the first of due, and at the first of each line of a group, of 200 lines at most; paused, limits: those of the settings, '' for
--        none; at, held: when the queue's rate would have the next job start, and until when the queue is held back, as RATES has them, '' for none;
--        ahead: clock of STATS, by which these times are, or ''
-- Errors: those of Redis.

local JOBS, DUE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, SETTINGS, COMPLETED, LINED, RATES = unpack(KEYS)
local first_session = 14 -- of KEYS

-- include: clock, has_header, due_of

local now = clock()

local in_lists, since = redis.call('ZCARD', LINED), -1
local function waiting(us)
  if us and us <= now and (since < 0 or us < since) then
    since = us
  end
end
for _, list in ipairs({HIGH, NORMAL, LOW, SUSPECT}) do
  in_lists = in_lists + redis.call('LLEN', list)
  local id = redis.call('LINDEX', list, 0)
  if id then
    local record = redis.call('HGET', JOBS, id)
    waiting(record and has_header(record) and due_of(record) or nil)
  end
end
local after = '-'
for _ = 1, 200 do
  local first = redis.call('ZRANGE', LINED, after, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
  local line, place = string.match(first or '', '^([^\1]+)\1(' .. string.rep('%d', 16) .. ')')
  if not line then
    break
  end
  waiting(tonumber(place))
  after = '(' .. line .. '\2'
end
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
waiting(tonumber(head[2]))
local running = 0
for k = first_session, #KEYS do
  running = running + redis.call('HLEN', KEYS[k])
end
local terminal
-- include: terminal_states
return {'ok', now, in_lists, redis.call('ZCARD', DUE), running,
  redis.call('ZCARD', terminal.dead.set), redis.call('ZCARD', terminal.cancelled.set), since,
  redis.call('ZCARD', terminal.completed.set), redis.call('HGET', SETTINGS, 'paused') or '', redis.call('HGET', SETTINGS, 'limits') or '',
  redis.call('ZSCORE', RATES, '') or '', redis.call('ZSCORE', RATES, 'h') or '', redis.call('HGET', STATS, 'clock') or ''}
