-- Reads the kinds of jobs: the beginnings of their envelopes, in which the kind is the first field. It writes nothing.
--
-- KEYS: as named below
-- ARGV: most: how many bytes of each envelope are returned; then IDs of jobs
-- Reply: {'ok', heads}: the first bytes of each job's envelope; '' where there is no record
-- Errors: those of Redis.

local JOBS = unpack(KEYS)
local fixed = 1 -- arguments before the IDs
local most = unpack(ARGV, 1, fixed)

local ids = {}
for i = fixed + 1, #ARGV do
  ids[#ids + 1] = ARGV[i]
end
local heads = redis.call('HMGET', JOBS, unpack(ids))
for i = 1, #heads do
  local record, start = heads[i] or '', 21
  if #record >= 22 and string.byte(record, 4) ~= 0 then
    start = 23 + string.byte(record, 21) * 256 + string.byte(record, 22)
  end
  heads[i] = string.sub(record, start, start + tonumber(most) - 1)
end
return {'ok', heads}
