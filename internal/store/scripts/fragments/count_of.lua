-- include: digits, limits_of

local counts = limits_of(redis.call('HGET', SETTINGS, 'limits')).running < math.huge -- the queue has a limit of running jobs

-- Returns what RUNNING has for a session, and what it should have: how many jobs the session runs, if the queue has such a limit. Each is nil for
-- no field. sessions are the numbers of the keys, as session_keys returns them.
local function count_of(session, sessions)
  local k = sessions[session]
  local runs = k and redis.call('HLEN', KEYS[k]) or 0
  return redis.call('HGET', RUNNING, session) or nil, counts and runs > 0 and digits(runs) or nil
end
