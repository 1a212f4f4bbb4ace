-- Unique keys and their windows.

-- Frees unique keys whose scope has ended: keys[i] if the job ids[i] has it.
local function free_keys(keys, ids)
  local values, gone = redis.call('HMGET', UNIQUE, unpack(keys)), {}
  for i = 1, #keys do
    if values[i] and string.match(values[i], '^[set] (.+)$') == ids[i] then
      gone[#gone + 1] = keys[i]
    end
  end
  if #gone > 0 then
    redis.call('HDEL', UNIQUE, unpack(gone))
  end
end

-- Frees the unique key of a job that ends, with this record. If windows is true, its window ends as well.
local function free_key_of(id, record, windows)
  local scope, key = unique_of(record)
  if scope == 'w' or scope == 't' then
    local till, holder = string.match(redis.call('HGET', UNIQUE, key) or '', '^(%w+) (.+)$')
    if holder == id and (windows or till == 't') then
      redis.call('HDEL', UNIQUE, key)
      redis.call('ZREM', WINDOWS, key)
    end
  elseif scope then
    free_keys({key}, {id})
  end
end

-- Reports whether the key that a job with this record must have again is another job's. Returns the scope and the key as well, if the job must have one.
-- A key whose job is gone is free.
local function key_taken(id, record, now)
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

-- Drops windows of unique keys that are over, at most most of them. Returns how many there were.
local function drop_windows(now, most)
  local over = redis.call('ZRANGE', WINDOWS, '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, most)
  if #over == 0 then
    return 0
  end
  local gone, values = {}, redis.call('HMGET', UNIQUE, unpack(over))
  for i = 1, #over do
    local till = values[i] and string.match(values[i], '^(%d+) ')
    if till and tonumber(till) <= now then
      gone[#gone + 1] = over[i]
    end
  end
  redis.call('ZREM', WINDOWS, unpack(over))
  if #gone > 0 then
    redis.call('HDEL', UNIQUE, unpack(gone))
  end
  return #over
end

-- Reports whether what UNIQUE has for a key is no longer so: its job is gone, has ended, or hasn't the key; or it is a window that WINDOWS doesn't have.
local function key_fault(key, value, first_session)
  local scope, id = string.match(value, '^(%w+) (.+)$')
  if scope ~= 's' and scope ~= 'e' and scope ~= 't' then
    local till = id and tonumber(redis.call('ZSCORE', WINDOWS, key) or nil)
    return not till or till ~= tonumber(scope)
  end
  local record = redis.call('HGET', JOBS, id)
  if not record then
    return true
  end
  local own_scope, own = unique_of(record)
  if own ~= key or own_scope == 'S' then
    return true
  end
  local state = place_of(id, class_of(record), first_session)
  return not (state == 'ready' or state == 'scheduled' or state == 'running' and scope == 'e')
end

-- Gives a job with this record its unique key, if it must have one, unless it had that only until it started. Returns false if the key is another job's. Changes nothing if
-- dry is set.
local function give_key(id, record, now, dry)
  local taken, scope, key = key_taken(id, record, now)
  if not scope or scope == 'S' then
    return true
  elseif taken then
    return false
  elseif not dry then
    redis.call('HSET', UNIQUE, key, scope .. ' ' .. id)
  end
  return true
end
