-- Returns the server's time in microseconds. A double is exact for such numbers until the year 2255.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
