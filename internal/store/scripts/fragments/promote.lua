-- A step of claim.lua: moves jobs that have become due to the ready lists of their classes.
if #promotable > 0 then
  local moved = {}
  if g then
    -- include: promote_lined
  end
  for _, member in ipairs(promotable) do
    local class = string.sub(member, 1, 1)
    moved[class] = moved[class] or {}
    table.insert(moved[class], string.sub(member, 2))
  end
  for class, due in pairs(moved) do
    local list = lists[class] or NORMAL
    local _, length = ready(list, due, false, held_back)
    waiting[list] = length
    suspects_ready = suspects_ready or class == 's'
  end
  if #promotable > 0 then
    redis.call('ZREM', DUE, unpack(promotable))
  end
end
