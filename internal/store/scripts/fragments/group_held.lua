-- Returns the key of the group that a delivery holds, from what the session's hash has for it, or nil. The key stands behind the flags. A unique key may follow.
local function group_held(value)
  return value and string.match(value, '^%d+ %w* ([^ ]+)')
end
