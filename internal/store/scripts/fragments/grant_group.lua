-- include: group_of

-- A step of claim.lua: notes with the delivery which group it holds. A job that was drawn from a line holds it from now on.
local key = from[i]
if key then
  g.hold(key)
else
  key = group_of(records[i])
end
if key then
  grants[2 * n + 2] = grants[2 * n + 2] .. (flags[i] and ' ' or '  ') .. key
end
