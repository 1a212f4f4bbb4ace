-- Finds one job: its record, and where it is, at one moment. It writes nothing.
--
-- KEYS: as named below, then inflight:<session> of each session that the caller knows
-- ARGV: id: of the job
-- Reply: {'ok', time in us, there, record, state, score, session, delivery, note, sessions, settings, unlisted, lined}
--        there: 1 if the job has a record, else 0; record: that one, or ''; state: 'scheduled', 'running', 'dead', 'cancelled', 'completed', 'awaiting', or
--        'ready' if it is in none of these places; score: that of the job where it is in a sorted set, else ''; session: of a running job the position, from
--        1, of its session among those of the call, else 0; delivery: what the session holds of it, else ''; note: the note of the job, else '';
--        sessions: all that are registered. If the state is 'ready' and one of these was not in the call, the job may be running
--        there; settings: fields and values; unlisted: 1 if the state is 'ready' and no ready list and no line has the job. Lists of more
--        than 100,000 jobs together aren't searched: then it is 0; lined: where the job is in the line of its group, what GROUPS has for
--        that, else ''
-- Errors: those of Redis.

local SESSIONS, JOBS, DUE, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, SETTINGS, COMPLETED, LINED, GROUPS, AWAITING = unpack(KEYS)
local first_session = 16 -- of KEYS
local id = unpack(ARGV)

local where, score, session, delivery = 'ready', '', 0, ''
for _, class in ipairs({'0', '1', '2', 's', 'a', 'b', 'c'}) do
  local at = redis.call('ZSCORE', DUE, class .. id)
  if at then
    where, score = 'scheduled', at
  end
end
for k = first_session, #KEYS do
  local value = redis.call('HGET', KEYS[k], id)
  if value then
    where, session, delivery = 'running', k - first_session + 1, value
  end
end
local terminal = terminal_states()
for name, state in pairs(terminal) do
  local at = redis.call('ZSCORE', state.set, id)
  if at then
    where, score = name, at
  end
end
local record = redis.call('HGET', JOBS, id)
local unlisted, lined = 0, ''
local group = record and group_of(record)
if group and redis.call('ZSCORE', LINED, line_of(record, group, id)) then
  lined = redis.call('HGET', GROUPS, group) or ''
elseif record and where == 'ready' and awaits(id, record) then
  where = 'awaiting'
elseif record and where == 'ready' then
  unlisted = 1
  local left = 100000 -- entries to search: some 3 ms
  for _, list in ipairs({HIGH, NORMAL, LOW, SUSPECT}) do
    left = left - redis.call('LLEN', list)
    if left < 0 or redis.call('LPOS', list, id) then
      unlisted = 0
      break
    end
  end
end
return {'ok', clock(), record and 1 or 0, record or '', where, score, session, delivery, redis.call('HGET', NOTES, id) or '',
  redis.call('ZRANGE', SESSIONS, 0, -1), redis.call('HGETALL', SETTINGS), unlisted, lined}
