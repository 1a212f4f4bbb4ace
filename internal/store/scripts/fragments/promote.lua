-- include: ready

-- Part of claim.lua. Moves the jobs that have come due to the ready lists of their classes.
local function promote()
  local moved = {}
  for _, member in ipairs(promotable) do
    local class = string.sub(member, 1, 1)
    moved[class] = moved[class] or {}
    table.insert(moved[class], string.sub(member, 2))
  end
  for class, ids in pairs(moved) do
    local _, list, length = ready(class, ids)
    waiting[list] = length
    suspects_ready = suspects_ready or class == 's'
  end
  if #promotable > 0 then
    redis.call('ZREM', DUE, unpack(promotable))
  end
end
