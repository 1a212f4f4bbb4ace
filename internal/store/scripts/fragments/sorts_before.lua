-- Whether a text stands before another in the order of their bytes, as Redis sorts members of the same score. Lua's own order goes
-- by the server's language.
local function sorts_before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end
