-- include: due_member, expiry_of

-- A step of act.lua: puts the job, with the record again, where it waits until us. A job of a group that doesn't hold it goes into its line then.
local class = class_of(again)
local lines_up = group and not holds
redis.call('HSET', JOBS, id, again)
if us > now then
  local member = lines_up and due_member(again, id) or class .. id
  redis.call('ZADD', DUE, digits(us), member)
  woken = woken or redis.call('ZRANGE', DUE, 0, 0)[1] == member
elseif lines_up then
  woken = g.join({line_of(again, group, id)}) and held_back == '' or woken
else
  woken = ready(lists[class] or NORMAL, {id}, false, held_back) or woken
end
local at = expiry_of(again)
if at then
  redis.call('ZADD', EXPIRES, digits(at), id)
  woken = woken or redis.call('ZRANGE', EXPIRES, 0, 0)[1] == id
end
grown = math.max(grown, #again)
