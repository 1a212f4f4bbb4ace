-- include: line_of

-- A step of act.lua: takes the job out of its place, so that it can have another. found: it was there. holds: it is a job that holds its group.
local found, holds = true, false
local group = group_of(record)
if group then
  -- include: lines
  g = g or lines()
  g.load({group})
end
if state == 'ready' then
  if not (group and g.quit(line_of(record, group, id))) then
    local looked
    found, looked = unlist(id, class_of(record))
    cost = cost + looked
    holds = found and group
  end
elseif state == 'scheduled' then
  redis.call('ZREM', DUE, place)
  holds = group and not string.find(place, '^[abc]')
else
  forget(place, id, #record)
end
if group and string.byte(record, 4) % 16 >= 8 then
  redis.call('ZREM', EXPIRES, id) -- if it hadn't started
end
if holds and (verb == 'cancel' or verb == 'delete' or verb == 'hold') then
  g.leave({group})
  holds = false
end
