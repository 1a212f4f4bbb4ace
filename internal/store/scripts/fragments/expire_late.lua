-- include: retention, digits, expiry_of, expire, group_of, line_of, due_member

-- A step of claim.lua: ends jobs that wait and should have started by now. over has their ids, at most 100. behind: there may be more of them.
limits = limits or retention(SETTINGS, {tonumber(keep_jobs), tonumber(keep_bytes), tonumber(keep_us)})
local bytes = 0
behind = #over == 100
for i = 1, #over do
  local id = over[i]
  bytes = bytes + redis.call('HSTRLEN', JOBS, id)
  if bytes > 1048576 and i > 1 then
    behind = true
    break
  end
  local record = redis.call('HGET', JOBS, id)
  local at = record and expiry_of(record)
  local key = at and group_of(record)
  if at and at > now then
    redis.call('ZADD', EXPIRES, digits(at), id) -- another program has put it there
  else
    redis.call('ZREM', EXPIRES, id)
    if key then
      g.load({key})
      if g.quit(line_of(record, key, id)) or redis.call('ZREM', DUE, due_member(record, id)) == 1 then
        expire(id, record)
      end
    end
  end
end
