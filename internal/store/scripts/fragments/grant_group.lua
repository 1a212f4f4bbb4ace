-- include: group_of

-- A step of claim.lua: notes with the delivery which group it holds.
local key = from[i]
if not key then
  key = group_of(records[i])
end
if key then
  grants[2 * n + 2] = grants[2 * n + 2] .. (flags[i] and ' ' or '  ') .. key
end
