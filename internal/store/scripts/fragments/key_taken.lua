-- include: unique_of

-- Reports whether the key that a job with this record must have again is another job's. Returns the scope and the key as well, if the job must have one.
-- A key whose job is gone is free.
local function key_taken(id, record)
  local scope, key = unique_of(record)
  if not scope or scope == 'w' or scope == 't' then
    return false
  end
  local value = redis.call('HGET', UNIQUE, key)
  local holder = value and string.match(value, '^[set] (.+)$')
  if holder then
    return holder ~= id and redis.call('HEXISTS', JOBS, holder) == 1, scope, key
  end
  local till = tonumber(value and string.match(value, '^(%d+) ') or 0)
  return till > now, scope, key
end
