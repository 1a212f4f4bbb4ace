-- Returns a whole number in digits. tostring would turn microseconds into 1.76e+15, '%.0f' takes three times as long as '%d',
-- and '%d' has 32 bits on some platforms.
local whole = string.format('%d', 4294967296) == '4294967296' and '%d' or '%.0f'
local format = string.format
local function digits(n)
  return format(whole, n)
end
