-- include: group_of, class_of, redue, digits

-- Makes those jobs due that hold their serial groups and were put off for the rates of these: see await_rate. The claim that meets one looks at the rate again. A job that
-- has been put off for something else since is left alone. Returns whether there were any.
local function put_on(keys, now)
  local fields, any = {}, false
  for i = 1, #keys do
    fields[i] = 'd' .. keys[i]
  end
  local texts = redis.call('HMGET', LIMITS, unpack(fields))
  for i = 1, #keys do
    local at, id = string.match(texts[i] or '', '^(%d+) (.+)$')
    local record = id and redis.call('HGET', JOBS, id)
    local member = record and group_of(record) == keys[i] and class_of(record) .. id
    local due = member and tonumber(redis.call('ZSCORE', DUE, member) or nil)
    if due and due == tonumber(at) and due > now then
      redis.call('HSET', JOBS, id, redue(record, now))
      redis.call('ZADD', DUE, digits(now), member)
      any = true
    end
    if id then
      redis.call('HDEL', LIMITS, fields[i])
      redis.call('ZREM', PARKED, fields[i])
    end
  end
  return any
end
