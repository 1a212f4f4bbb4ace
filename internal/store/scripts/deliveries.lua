-- Reads records of jobs that a session runs. It writes nothing.
--
-- KEYS: as named below; INFLIGHT is inflight:<session>
-- ARGV: room: most bytes of records to return; the first may have more; then the IDs of the jobs
-- Reply: {'ok', time in us, deliveries, records, notes}
--        deliveries: what the session holds of the jobs, as far as the room goes; a job that it runs no more has none; records, notes: theirs; a
--        record is missing where there is none
-- Errors: those of Redis.

local INFLIGHT, JOBS, NOTES = unpack(KEYS)
local fixed = 1 -- arguments before the IDs
local room = unpack(ARGV, 1, fixed)

local all = {}
for i = fixed + 1, #ARGV do
  all[#all + 1] = ARGV[i]
end
local _, ids, records = read_records(all, tonumber(room), '')
return {'ok', clock(), redis.call('HMGET', INFLIGHT, unpack(ids)), records, redis.call('HMGET', NOTES, unpack(ids))}
