-- include: has_header, suspects_welcome

-- Looks at the first n suspects. Returns three values: the flags of those that the session may take (a flag stands behind the job's token);
-- whether suspects are left out because the reply has no room; how long (us) a suspect still keeps others out, 0 if none does.
local function suspects_among(n)
  local light, heavy, last, oldest = suspects_welcome()
  local flags, reopens = {}, oldest and math.max(oldest + hold - now, 1) or 0
  if light <= 0 and not heavy then
    return flags, false, reopens
  end
  for i, id in ipairs(redis.call('LRANGE', SUSPECT, 0, n - 1)) do
    local size = redis.call('HSTRLEN', JOBS, id)
    if i > 1 and size > room then
      return flags, true, 0
    end
    room = room - size
    local record = redis.call('HGET', JOBS, id)
    local crashes = record and has_header(record) and math.max(string.byte(record, 3), 2) or 2
    if not record then
      flags[i] = '' -- it is taken from the list, and that is all
    elseif crashes == 2 and light > 0 or crashes == 3 and heavy or crashes > 3 and last then
      flags[i] = ' s' .. crashes
      light, heavy, last = crashes == 2 and light - 1 or 0, false, false
    else
      break
    end
  end
  if flags[1] and reopens == 0 then
    reopens = hold
  end
  return flags, false, reopens
end
