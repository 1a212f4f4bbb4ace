-- Returns what the suspects of the session leave room for: how many suspects with two crashes, and whether
-- one with more, and one with a single crash left. A session that ends charges all its jobs. So
-- those with two crashes run eight at a time, those with three apart, each of them until it has
-- run for as long as a suspect keeps others out; and one that a single crash is left to has no
-- suspect beside it, however long it runs: no suspect dies of another's fault.
local function suspects_welcome()
  local light, heavy, last = 8, true, true
  for _, value in ipairs(redis.call('HVALS', INFLIGHT)) do
    local token, crashes = string.match(value, '^(%d+) s(%d*)')
    if token then
      crashes = tonumber(crashes) or 4
      last = false
      if crashes >= 4 then
        return 0, false, false
      elseif now - token < hold then
        heavy = false
        light = crashes == 2 and light - 1 or 0
      end
    end
  end
  return light, heavy, last
end
