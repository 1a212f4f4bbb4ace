-- Reads the kinds of jobs: the beginnings of their envelopes, in which the kind is the first field. It writes nothing.
--
-- KEYS: as named below
-- ARGV: IDs of jobs
-- Reply: {'ok', heads}: the first 220 bytes of each job's envelope; '' where there is no record
-- Errors: those of Redis.

local JOBS = unpack(KEYS)

local heads = redis.call('HMGET', JOBS, unpack(ARGV))
for i = 1, #heads do
  local record, start = heads[i] or '', 21
  if #record >= 22 and string.byte(record, 4) ~= 0 then
    start = 23 + string.byte(record, 21) * 256 + string.byte(record, 22)
  end
  heads[i] = string.sub(record, start, start + 219)
end
return {'ok', heads}
