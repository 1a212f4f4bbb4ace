-- Looks at groups: what is kept of each, what there is of its lines, and how many jobs hold it, all at one moment. It writes nothing.
--
-- KEYS: as named below, then inflight:<session> of each session
-- ARGV: inflight: what stands before a session in the name of its key; keys: how many groups
--       then for each group: key: its key; then for each job that waits and may hold one of the groups: id: its ID
-- Reply: {'ok', moved, groups}
--        moved: how often jobs that ran have come to wait again, as the queue counts it: a text that changes when one does; groups: for each
--        key what GROUPS has, '' for nothing, and how many jobs hold it: those that run, and those of the IDs; then for each class '1' if
--        jobs wait in the line, else '0', the score of the turn, and the time at which the line gets one, '' if there is none; at last
--        '1' if the group is paused, else '0'
--        {'again'}  there is a session that isn't in KEYS; nothing was looked at
-- Errors: those of Redis.

local SESSIONS, JOBS, DUE, STATS, DEAD, CANCELLED, COMPLETED, LINED, TURNS, GROUPS, LIMITS, PARKED = unpack(KEYS)
local first_session = 13 -- of KEYS
local fixed = 2 -- arguments before the keys
local inflight, keys = unpack(ARGV, 1, fixed)
keys = tonumber(keys)

local sessions, all = session_keys(first_session, inflight)
if not all then
  return {'again'}
end
local holders, runs = {}, {}
for _, k in pairs(sessions) do
  local got = redis.call('HGETALL', KEYS[k])
  for i = 1, #got, 2 do
    runs[got[i]] = true
    local key = delivery_group(got[i + 1])
    if key then
      holders[key] = (holders[key] or 0) + 1
    end
  end
end
for i = fixed + keys + 1, #ARGV do
  local id = ARGV[i]
  local record = not runs[id] and redis.call('HGET', JOBS, id)
  local key = record and group_of(record)
  if key and not is_terminal(id) and not waits_for_group(id, record, key) then
    holders[key] = (holders[key] or 0) + 1
  end
end
local groups = {}
for i = fixed + 1, fixed + keys do
  local key = ARGV[i]
  local facts = {redis.call('HGET', GROUPS, key) or '', digits(holders[key] or 0)}
  for class = 0, 2 do
    local waits, turn, parked = line_facts(class .. key)
    facts[#facts + 1] = waits and '1' or '0'
    facts[#facts + 1] = turn or ''
    facts[#facts + 1] = parked or ''
  end
  facts[#facts + 1] = redis.call('HGET', LIMITS, 'p' .. key) and '1' or '0'
  groups[#groups + 1] = facts
end
local moved = redis.call('HMGET', STATS, 'retry', 'delay', 'return', 'crashed')
for i = 1, 4 do
  moved[i] = moved[i] or '0'
end
return {'ok', table.concat(moved, ' '), groups}
