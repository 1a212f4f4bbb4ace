-- Returns the unique key that a delivery has, from what the session's hash has for it, or nil. It stands behind the token, the flags and the
-- group, each of which ends with a space.
local function key_held(value)
  return value and string.match(value, '^%d+ %w* [^ ]* (.+)$')
end
