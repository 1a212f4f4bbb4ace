-- Returns which suspects the session may still take, given those that it has: how many with two crashes, whether one with more crashes,
-- and whether one whose next crash is the last that it may have. Then the token of the first that keeps others out for now, or nil.
--
-- When a session crashes, each of its jobs may get a crash. So suspects with two crashes begin at most sixteen at a time, and suspects
-- with three alone. A suspect keeps others out only for a limited time (hold). A suspect on its last crash is different: no
-- other suspect ever runs beside it. So no suspect dies because of another one.
local function suspects_welcome()
  local light, heavy, last, oldest = 16, true, true, nil
  for _, value in ipairs(redis.call('HVALS', INFLIGHT)) do
    local token, crashes = string.match(value, '^(%d+) s(%d*)')
    if token then
      token, crashes = tonumber(token), tonumber(crashes) or 4
      last = false
      if crashes >= 4 then
        return 0, false, false, nil
      elseif now - token < hold then
        heavy = false
        light = crashes == 2 and light - 1 or 0
        oldest = math.min(oldest or token, token)
      end
    end
  end
  return light, heavy, last, oldest
end
