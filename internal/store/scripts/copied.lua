-- Removes the notes of deaths whose jobs were copied. A note that was written again stays: its job has died again.
--
-- KEYS: as named below
-- ARGV: notes: how many notes; then for each of them the job's ID, and the time in us that it had
-- Reply: how many notes were removed
-- Errors: those of Redis, before the first write.

local NOTES = unpack(KEYS)
local fixed = 1 -- arguments before the IDs
local notes = unpack(ARGV, 1, fixed)

local gone = {}
for i = fixed + 1, fixed + 2 * notes, 2 do
  local id, time = unpack(ARGV, i, i + 1)
  if redis.call('HGET', NOTES, 'dead ' .. id) == time then
    gone[#gone + 1] = 'dead ' .. id
  end
end
return #gone > 0 and redis.call('HDEL', NOTES, unpack(gone)) or 0
