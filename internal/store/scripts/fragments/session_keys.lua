-- Returns the numbers of the sessions' keys, by the names of the sessions, and whether all sessions that are registered are in KEYS.
local function session_keys()
  local keys, all = {}, true
  for k = first_session, #KEYS do
    keys[string.sub(KEYS[k], #inflight + 1)] = k
  end
  for _, session in ipairs(redis.call('ZRANGE', SESSIONS, 0, -1)) do
    all = all and keys[session]
  end
  return keys, all
end
