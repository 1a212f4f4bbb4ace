-- A step of examine.lua: reads the IDs of the call.
local page
if source == 'ids' then
  for i = fixed + 1, #ARGV do
    ids[#ids + 1] = ARGV[i]
  end
elseif source == 'ready' then
  local list = lists[of]
  ids = redis.call('LRANGE', list, cursor, count)
  following = tostring(redis.call('LLEN', list))
elseif source == 'idle' then
  following = tostring(redis.call('ZCARD', IDLE))
  for _, address in ipairs(redis.call('ZRANGE', IDLE, 0, tonumber(count) - 1)) do
    if string.sub(address, 2, #channels + 1) ~= channels or not redis.call('ZSCORE', SESSIONS, string.sub(address, #channels + 2)) then
      left[#left + 1] = address
    end
  end
elseif source == 'unique' then
  -- include: key_fault
  local found = redis.call('HSCAN', UNIQUE, cursor, 'COUNT', count)
  following = found[1]
  for i = 1, #found[2], 2 do
    if key_fault(found[2][i], found[2][i + 1]) then
      left[#left + 1] = found[2][i]
      records[#records + 1] = found[2][i + 1]
    end
  end
elseif source == 'due' or source == 'dead' or source == 'cancelled' or source == 'completed' or source == 'expires' then
  local list = ({due = DUE, dead = DEAD, cancelled = CANCELLED, completed = COMPLETED, expires = EXPIRES})[source]
  page = redis.call('ZSCAN', list, cursor, 'COUNT', count)
elseif source == 'session' then
  local k = sessions[of] -- nil if the call doesn't know the session: the page is empty
  page = k and redis.call('HSCAN', KEYS[k], cursor, 'COUNT', count)
else
  local list = ({jobs = JOBS, notes = NOTES, cancels = CANCELS})[source]
  page = redis.call('HSCAN', list, cursor, 'COUNT', count)
end
if page then
  following = page[1]
  for i = 1, #page[2], 2 do
    local id = page[2][i]
    if source == 'notes' and string.find(id, ' ', 1, true) then
      -- The note of a death is about no job that is there.
    elseif source ~= 'due' then
      ids[#ids + 1] = id
    elseif string.find(id, '^[012sabc].') then
      ids[#ids + 1] = string.sub(id, 2) -- without the class
    else
      records[#records + 1] = id
    end
  end
  if source == 'jobs' then
    records = page[2]
  end
end
