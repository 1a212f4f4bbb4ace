-- Reads the kinds of jobs: the beginnings of their envelopes, in which the kind is the first field. It writes nothing.
--
-- KEYS: as named below
-- ARGV: most: how many bytes of each envelope are returned; largest: a record of more bytes isn't read, as that takes too long; then the IDs of the jobs
-- Reply: {'ok', heads}
--        heads: the first bytes of each job's envelope; '' where there is no record, and for one that is too large
-- Errors: those of Redis.

local JOBS = unpack(KEYS)
local fixed = 2 -- arguments before the IDs
local most, largest = unpack(ARGV, 1, fixed)

local heads = {}
for i = fixed + 1, #ARGV do
  local record = redis.call('HSTRLEN', JOBS, ARGV[i]) <= tonumber(largest) and redis.call('HGET', JOBS, ARGV[i]) or ''
  local start = 21
  if #record >= 22 and string.byte(record, 4) ~= 0 then
    start = 23 + string.byte(record, 21) * 256 + string.byte(record, 22)
  end
  heads[#heads + 1] = string.sub(record, start, start + tonumber(most) - 1)
end
return {'ok', heads}
