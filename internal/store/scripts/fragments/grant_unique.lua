-- include: unique_of

-- A step of claim.lua: looks at the unique key of a job that is granted. One until the start is freed, and the record says from then on that the job
-- had it. Or its window begins. One until the end is noted with the delivery.
local scope, key, window, part = unique_of(records[i])
if scope == 's' then
  u.keys[#u.keys + 1], u.ids[#u.ids + 1] = key, id
  records[i] = string.sub(records[i], 1, part - 1) .. 'S' .. string.sub(records[i], part + 1)
  u.begun = u.begun or {}
  u.begun[#u.begun + 1], u.begun[#u.begun + 2] = id, records[i]
elseif scope == 't' then
  u.throttled = u.throttled or {}
  table.insert(u.throttled, {key, id, window})
elseif scope == 'e' then
  local group = string.byte(records[i], 4) % 2 == 1 -- then grant_group has noted it
  grants[2 * n + 2] = grants[2 * n + 2] .. (group and ' ' or flags[i] and '  ' or '   ') .. key
end
