-- A step of act.lua: takes the job out of its place, so that it can have another. found: it was there.
local found = true
if state == 'ready' then
  local looked
  found, looked = unlist(id, class_of(record))
  cost = cost + looked
elseif state == 'scheduled' then
  redis.call('ZREM', DUE, place)
else
  forget(place, id, #record)
end
