-- Returns how many terminal jobs of each state a queue keeps: {most jobs, most bytes, how long in us}. The limits apply to dead and to
-- cancelled jobs separately. A value that the queue's settings don't have is taken from limits, a list of the same form. The fourth value says
-- whether dead jobs are to be copied to another queue.
local function retention(settings, limits)
  local set = redis.call('HMGET', settings, 'keep_jobs', 'keep_bytes', 'keep_us', 'copy_dead')
  for i = 1, 3 do
    local known = set[i] and #set[i] <= 15 and string.find(set[i], '^[1-9]%d*$')
    set[i] = known and tonumber(set[i]) or limits[i]
  end
  set[4] = set[4] and #set[4] <= 200 and string.find(set[4], '^[!-z|~]+$') ~= nil -- '{off}' is no name
  return set
end
