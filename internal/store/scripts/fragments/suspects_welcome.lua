-- Returns which suspects the session may still take, given those that it has: how many with two crashes, whether one with more crashes,
-- and whether one whose next crash is the last that it may have.
--
-- When a session crashes, each of its jobs gets a crash. So suspects with two crashes run at most eight at a time, and suspects
-- with three run alone. A suspect keeps others out only for a limited time (hold). A suspect on its last crash is different: no
-- other suspect ever runs beside it. So no suspect dies because of another one.
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
