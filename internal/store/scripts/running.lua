-- Looks for sessions that are counted wrong for the queue's limit of running jobs. It writes nothing.
--
-- KEYS: as named below, then inflight:<session> of each session
-- ARGV: inflight: what stands before a session in the name of its key
-- Reply: {'ok', wrong}: for each session that is counted wrong its name, what RUNNING has for it, and what it should have; '' for no field
--        {'again'}  there is a session that isn't in KEYS; nothing was looked at
-- Errors: those of Redis.

local SESSIONS, SETTINGS, RUNNING = unpack(KEYS)
local first_session = 4 -- of KEYS
local inflight = unpack(ARGV)

-- include: session_keys, count_of

local sessions, all = session_keys()
if not all then
  return {'again'}
end
local wrong = {}
local function look(session)
  local has, right = count_of(session, sessions)
  if has ~= right then
    wrong[#wrong + 1] = session
    wrong[#wrong + 1] = has or ''
    wrong[#wrong + 1] = right or ''
  end
end
for session in pairs(sessions) do
  look(session)
end
local counted = redis.call('HGETALL', RUNNING)
for i = 1, #counted, 2 do
  if not sessions[counted[i]] then
    look(counted[i])
  end
end
return {'ok', wrong}
