-- Drops terminal jobs beyond what the queue keeps, at most 500 of each kind a call.
--
-- KEYS: as named below
-- ARGV: 1 protocol, 2 most jobs of each kind, 3 most bytes of them, 4 how long they are kept (us), unless the settings
--       say so
-- Reply: the number of jobs dropped: none if the queue's layout is newer than the protocol
-- Errors: those of Redis, before the first write.

local JOBS, STATS, DEAD, CANCELLED, SETTINGS = unpack(KEYS)

-- include: clock, standing, retention, trim

local held_back = standing(SETTINGS, ARGV[1])
if held_back ~= '' and held_back ~= 'paused' then
  return 0
end
local now = clock()
local limits = retention(SETTINGS, {tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])})
redis.call('HLEN', JOBS)
redis.call('ZCARD', DEAD)
redis.call('ZCARD', CANCELLED)
local dropped = 0
for list, field in pairs({[DEAD] = 'dead_bytes', [CANCELLED] = 'cancelled_bytes'}) do
  local bytes = tonumber(redis.call('HGET', STATS, field) or '0') or 0
  dropped = dropped + trim(list, bytes, field, JOBS, STATS, limits, now, 500)
end
return dropped
