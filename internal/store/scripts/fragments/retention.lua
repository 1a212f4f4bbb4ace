-- Returns how many terminal jobs of each state a queue keeps: {most jobs, most bytes, how long in us}. The limits apply to dead and to
-- cancelled jobs separately. A value that the queue's settings don't have is taken from limits, a list of the same form.
local function retention(settings, limits)
  local set = redis.call('HMGET', settings, 'keep_jobs', 'keep_bytes', 'keep_us')
  for i = 1, 3 do
    local known = set[i] and #set[i] <= 15 and string.find(set[i], '^[1-9]%d*$')
    set[i] = known and tonumber(set[i]) or limits[i]
  end
  return set
end
