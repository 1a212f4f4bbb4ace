-- A step of put.lua: puts the job into its place. One that is held leaves that first.
local class = class_of(record)
us = tonumber(us)
if old then
  redis.call('ZREM', DUE, class_of(old) .. id)
end
if state == 'gone' then
  finish('deleted', {id})
elseif terminal[state] then
  retain(terminal[state], id, record, own_age(record), limits, math.min(us, now))
else
  if state == 'ready' then
    woken = ready(lists[class] or NORMAL, {id}, false, held_back) or woken
  else
    redis.call('ZADD', DUE, digits(us), class .. id)
    woken = woken or state == 'scheduled' and redis.call('ZRANGE', DUE, 0, 0)[1] == class .. id
  end
  redis.call('HSET', JOBS, id, record)
  grown = math.max(grown, #record)
end
if not old then
  note('enqueued', 1)
end
