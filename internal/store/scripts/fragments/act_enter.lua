-- A step of act.lua: puts the job, with the record again, where it waits until us.
local class = class_of(again)
redis.call('HSET', JOBS, id, again)
if us > now then
  redis.call('ZADD', DUE, digits(us), class .. id)
  woken = woken or redis.call('ZRANGE', DUE, 0, 0)[1] == class .. id
else
  woken = ready(lists[class] or NORMAL, {id}, false, held_back) or woken
end
grown = math.max(grown, #again)
