-- Saves what the handler of a running job wants later deliveries to have: gives the job another record, under the token of the delivery.
--
-- KEYS, ARGV: as named below; INFLIGHT is of the session
--       id, token: of the delivery: its job's ID, and its fencing token
--       before: SHA-1 of the record that the job must have; record: the one that it gets
-- Reply: {'ok'}        it has that record. It also is the reply of a call that comes again
--        {'changed', digest}  it has another record than before, with this SHA-1; nothing was changed. A late copy of a call meets that, and one after a
--        failover of Redis to an older state
--        {'superseded'}  the session doesn't have the delivery: it is over, or the job has another one; nothing was changed
-- Errors: those of Redis, before the first write.

local INFLIGHT, JOBS, STATS = unpack(KEYS)
local id, token, before, record = unpack(ARGV)

local old = owns(redis.call('HGET', INFLIGHT, id), token) and redis.call('HGET', JOBS, id)
if not old then
  return {'superseded'}
end
if old == record then
  return {'ok'}
end
local digest = redis.sha1hex(old)
if digest ~= before then
  return {'changed', digest}
end
local largest = tonumber((string.match(redis.call('HGET', STATS, 'largest') or '', '^%d+$')))
if largest and #record > largest then
  redis.call('HSET', STATS, 'largest', #record) -- before the record: claims and takings back go by it
end
redis.call('HSET', JOBS, id, record)
return {'ok'}
