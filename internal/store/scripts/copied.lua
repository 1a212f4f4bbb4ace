-- Removes the notes of deaths whose jobs were copied, or need no copy. A note that was written again stays: its job has died again.
--
-- KEYS: as named below
-- ARGV: notes: how many notes; then for each of them: id: of the job; time: that it had (us); unless_dead: '1' if it stays where the
--       job is dead, or is being moved, else ''
-- Reply: how many notes were removed
-- Errors: those of Redis, before the first write.

local JOBS, DUE, DEAD, NOTES = unpack(KEYS)
local fixed = 1 -- arguments before the IDs
local notes = unpack(ARGV, 1, fixed)

local gone = {}
for i = fixed + 1, fixed + 3 * notes, 3 do
  local id, time, unless_dead = unpack(ARGV, i, i + 2)
  if redis.call('HGET', NOTES, 'dead ' .. id) == time and not (unless_dead == '1' and dead_or_held(id, JOBS, DUE, DEAD)) then
    gone[#gone + 1] = 'dead ' .. id
  end
end
return #gone > 0 and redis.call('HDEL', NOTES, unpack(gone)) or 0
