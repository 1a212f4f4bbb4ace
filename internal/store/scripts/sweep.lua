-- Drops terminal jobs beyond the limits of the queue, and those whose own time has come, at most 500 of each state in one call. If the queue
-- keeps no completed jobs, all of those go that it kept before. Those with a time of their own stay, up to keep_jobs and keep_bytes. Also drops
-- windows of unique keys that are over, and old receipts of moves, at most 500 of each.
--
-- KEYS, ARGV: as named below
--       protocol: the newest layout that the caller knows
--       keep_jobs, keep_bytes, keep_us: the limits if the settings have none: the number of jobs of each state, their bytes, and how
--       long they are kept (us)
-- Reply: the number of jobs, windows and receipts dropped; 0 if the queue's layout isn't one that the protocol knows
-- Errors: those of Redis, before the first write.

local JOBS, STATS, DEAD, CANCELLED, SETTINGS, COMPLETED, UNIQUE, WINDOWS, RECEIPTS = unpack(KEYS)
local protocol, keep_jobs, keep_bytes, keep_us = unpack(ARGV)

local withheld = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return 0
end
check_keys()
local now = clock()
local limits = retention(SETTINGS, {tonumber(keep_jobs), tonumber(keep_bytes), tonumber(keep_us)})
local terminal = terminal_states()
local dropped = 0
for name, state in pairs(terminal) do
  local bounds = name == 'completed' and (keeps(SETTINGS) or {tonumber(keep_jobs), tonumber(keep_bytes), -math.huge}) or limits
  local bytes = tonumber(redis.call('HGET', STATS, state.bytes) or '0') or 0
  dropped = dropped + trim(state, bytes, bounds, now, 500)
end
return dropped + drop_windows(now, 500) + drop_receipts(now, 500)
