-- Returns the state of a job that has a record and waits, if it does, under that class. Then, of a terminal one, its entry of
-- terminal_states; of a scheduled one its member of DUE, and its time; of a running one the number of its session's key, and
-- what the session holds for it. One that is in none of these places is ready: the lists
-- and the lines of groups aren't searched.
local function place_of(id, class)
  local terminal
  -- include: terminal_states
  for name, state in pairs(terminal) do
    if redis.call('ZSCORE', state.set, id) then
      return name, state
    end
  end
  for _, other in ipairs({class, '0', '1', '2', 's', 'a', 'b', 'c'}) do
    local us = redis.call('ZSCORE', DUE, other .. id)
    if us then
      return 'scheduled', other .. id, tonumber(us)
    end
  end
  for k = first_session, #KEYS do
    local held = redis.call('HGET', KEYS[k], id)
    if held then
      return 'running', k, held
    end
  end
  return 'ready'
end
