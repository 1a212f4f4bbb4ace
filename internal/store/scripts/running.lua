-- Looks for sessions that are counted wrong for the queue's limit of running jobs. It writes nothing.
--
-- KEYS: as named below, then inflight:<session> of each session
-- ARGV: inflight: what stands before a session in the name of its key
-- Reply: {'ok', wrong}
--        wrong: for each session that is counted wrong its name, what RUNNING has for it, and what it should have; '' for no field
--        {'again'}  there is a session that isn't in KEYS; nothing was looked at
-- Errors: those of Redis.

local SESSIONS, SETTINGS, RUNNING = unpack(KEYS)
local first_session = 4 -- of KEYS
local inflight = unpack(ARGV)

local sessions, all = session_keys(first_session, inflight)
if not all then
  return {'again'}
end
local names = {}
for session in pairs(sessions) do
  names[#names + 1] = session
end
local counted = redis.call('HGETALL', RUNNING)
for i = 1, #counted, 2 do
  if not sessions[counted[i]] then
    names[#names + 1] = counted[i]
  end
end
local wrong, limited = {}, is_limited()
for _, session in ipairs(names) do
  local has, right = count_of(session, sessions, limited)
  if has ~= right then
    wrong[#wrong + 1] = session
    wrong[#wrong + 1] = has or ''
    wrong[#wrong + 1] = right or ''
  end
end
return {'ok', wrong}
