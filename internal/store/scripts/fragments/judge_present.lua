-- A step of enqueue.lua: finds the outcome for a job whose ID another job has. It depends on the state of the other job.
outcome = '0'
local ended
if not terminal then
  -- include: terminal_states
end
for _, state in pairs(terminal) do
  if redis.call('ZSCORE', state.set, id) then
    outcome, ended = state.met, state
    break
  end
end
if ended and not detail.cautious and not entry then
  outcome = string.upper(outcome)
  replaced = replaced or {}
  replaced[#replaced + 1] = {id, ended, redis.call('HSTRLEN', JOBS, id)}
elseif not ended then
  for _, class in ipairs({'0', '1', '2', 's', 'a', 'b', 'c'}) do
    if redis.call('ZSCORE', DUE, class .. id) then
      outcome = 's'
      break
    end
  end
end
