-- Reads the statistics of a queue. It writes nothing.
--
-- KEYS, ARGV: as named below
--       letter: 'm' for the fields of minutes, 'h' for those of hours; fields: how many there are
-- Reply: {'ok', time in us, what the counters say now, samples}
--        samples: the fields since:<letter>, last and before, then those of the letter, from 0; a field is missing where there is none
-- Errors: those of Redis.

local STATS, HISTORY = unpack(KEYS)
local letter, fields = unpack(ARGV)

local totals, err = totals_of(STATS)
if not totals then
  return err
end
local names = {'since:' .. letter, 'last', 'before'}
for i = 1, tonumber(fields) do
  names[i + 3] = letter .. i - 1
end
return {'ok', clock(), totals, redis.call('HMGET', HISTORY, unpack(names))}
