-- include: expiry_of

-- A step of put.lua: puts the job into its place. One that is held leaves that first. A job of a group doesn't hold it: it waits in its line. One that
-- expires does so here.
us = tonumber(us)
if old then
  redis.call('ZREM', DUE, due_member(old, id))
end
if state == 'gone' then
  finish('deleted', {id})
  free_key_of(id, old)
elseif terminal[state] then
  retain(terminal[state], id, record, own_age(record), limits, math.min(us, now))
else
  local group = group_of(record)
  if group then
    -- include: lines
    g = g or lines()
    g.load({group})
  end
  if state == 'ready' and group then
    -- include: line_of
    woken = g.join({line_of(record, group, id)}) and held_back == '' or woken
  elseif state == 'ready' then
    woken = ready(lists[class_of(record)] or NORMAL, {id}, false, held_back) or woken
  else
    local member = due_member(record, id)
    redis.call('ZADD', DUE, digits(us), member)
    woken = woken or state == 'scheduled' and redis.call('ZRANGE', DUE, 0, 0)[1] == member
  end
  redis.call('HSET', JOBS, id, record)
  local at = expiry_of(record)
  if at then
    redis.call('ZADD', EXPIRES, digits(at), id)
    woken = woken or redis.call('ZRANGE', EXPIRES, 0, 0)[1] == id
  end
  grown = math.max(grown, #record)
end
if not old then
  note('enqueued', 1)
end
