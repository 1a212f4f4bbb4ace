-- include: terminal_states

-- Returns the outcome for a job whose ID is there: what state that job is in. Of a terminal state it returns the state as well.
local function state_of(id)
  for _, state in pairs(terminal_states()) do
    if redis.call('ZSCORE', state.set, id) then
      return state.met, state
    end
  end
  for _, class in ipairs({'0', '1', '2', 's'}) do
    if redis.call('ZSCORE', DUE, class .. id) then
      return 's'
    end
  end
  return '0'
end
