-- What the scripts of a lock share. It runs before each of them but free.lua and leave.lua.
--
-- Beside the lock, a string at the user's key with a random value, there is its record:
-- a string "<token> <value> <owner>" with the last token granted, the value of
-- the lock that it was granted to, and a name for people to read. A record whose owner
-- is "*" is a reservation: the lock is free, and for a moment only the waiter
-- with that value may take it. Others' clients don't know of it, and get their turn.

-- Lua's numbers are exact below this: 2^53 - 1.
local MAX_TOKEN = 9007199254740991
-- How long a record outlives the last grant or extension: 7 days, ms. A string: Redis needs time to print numbers.
local RECORD_TTL = '604800000'
-- How long a process stays in a waiting line unless it looks again, ms.
local LINE_TTL = '10000'
-- How long a reservation lasts, with the pause of at most 10 ms that it asks of its waiter, µs.
local RESERVED = 60000

-- Returns the server's clock, µs, as a number and as a string. The string is cheaper than decimal.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2], t[1] .. string.sub('00000' .. t[2], -6)
end

-- Returns the record's token, value and owner: 0, '' and '' if there is none, and an
-- error as a table if it is none of ours.
local function read_record(key)
  local text = redis.pcall('GET', key)
  if type(text) == 'table' then return text end
  if not text then return 0, '', '' end
  local digits, value, owner = string.match(text, '^(%d+) (%S+) (.+)$')
  if not digits then digits, value, owner = string.match(text, '^%d+$'), '', '' end
  local token = digits and #digits <= 16 and tonumber(digits)
  if not token or token >= MAX_TOKEN then
    return redis.error_reply('BADRECORD it is no "<token> <value> <owner>" with a token below 2^53 - 1')
  end
  return token, value, owner
end

-- Not tostring: it turns microseconds into 1.76e+15.
local function decimal(token)
  return string.format('%.0f', token)
end
