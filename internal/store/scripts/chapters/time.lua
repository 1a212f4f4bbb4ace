-- Clocks, and numbers as texts.

-- Returns the server's time in microseconds. A double is exact for such numbers until the year 2255.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- The format of a whole number: '%d' has 32 bits on some platforms. There '%.0f' is taken, which takes three times as long.
local whole = string.format('%d', 4294967296) == '4294967296' and '%d' or '%.0f'

-- A local is found faster than a field.
local format = string.format

-- Returns a whole number in digits. tostring would turn microseconds into 1.76e+15.
local function digits(n)
  return format(whole, n)
end

-- Returns a time as 8 bytes, big endian, as a record's header has it.
local function eight_bytes(us)
  local high = math.floor(us / 4294967296)
  local low = us - high * 4294967296
  local h, d = low % 256, high % 256
  low, high = (low - h) / 256, (high - d) / 256
  local g, c = low % 256, high % 256
  low, high = (low - g) / 256, (high - c) / 256
  local f, b = low % 256, high % 256
  return string.char((high - b) / 256, b, c, d, (low - f) / 256, f, g, h)
end
