-- include: expiry_of

-- A step of claim.lua: looks at a job that was drawn and that may expire. If its time is over, it ends. Else it has started, and never expires.
local at, part = expiry_of(records[i])
if at then
  redis.call('ZREM', EXPIRES, id)
end
if at and at <= now then
  -- include: retention, expire
  limits = limits or retention(SETTINGS, {tonumber(keep_jobs), tonumber(keep_bytes), tonumber(keep_us)})
  there, seen[id] = false, true
  expire(id, records[i])
elseif at then
  records[i] = string.sub(records[i], 1, part - 1) .. string.rep('\0', 8) .. string.sub(records[i], part + 8)
  redis.call('HSET', JOBS, id, records[i])
end
