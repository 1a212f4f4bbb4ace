-- include: unique_of, place_of, class_of

-- Reports whether what UNIQUE has for a key is no longer so: its job is gone, has ended, or hasn't the key; or it is a window that WINDOWS doesn't have.
local function key_fault(key, value)
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
  local state = place_of(id, class_of(record))
  return not (state == 'ready' or state == 'scheduled' or state == 'running' and scope == 'e')
end
