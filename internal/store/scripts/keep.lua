-- Sets how many dead jobs and how many cancelled jobs the queue keeps. The limits apply to each state separately.
--
-- KEYS, ARGV: as named below
--       all: '1' to set all values that follow, '0' to set only those that aren't set yet
--       keep_jobs, keep_bytes, keep_us: most jobs, most bytes of them, how long they are kept (us); '' leaves a value as it is
-- Reply: {jobs, bytes, us, changed}: the values that are set now; '' for one that isn't set; changed: 1 if a value was set anew
-- Errors: those of Redis, and 'LAYOUT n signalbox: ...' as in enqueue.lua, but only if the layout is older; before the first write.

local STATS, SETTINGS = unpack(KEYS)
local protocol, all, keep_jobs, keep_bytes, keep_us = unpack(ARGV)

local held_back, _, _, begins = standing(SETTINGS, STATS, protocol)
if (tonumber(held_back) or 999) < tonumber(protocol) then
  return other_layout(held_back, protocol)
end

local before = redis.call('HMGET', SETTINGS, 'keep_jobs', 'keep_bytes', 'keep_us')
local known = retention(SETTINGS, {})
-- When Redis is out of memory it still permits this, and then all that follows. So a user can make the queue keep less.
redis.call('HDEL', SETTINGS, '')
local wanted, changed = {keep_jobs, keep_bytes, keep_us}, 0
for i, field in ipairs({'keep_jobs', 'keep_bytes', 'keep_us'}) do
  local new = wanted[i]
  if new ~= '' and new ~= before[i] and (all == '1' or not known[i]) then
    begin(SETTINGS, STATS, begins)
    begins = false
    redis.call('HSET', SETTINGS, field, new)
    before[i], changed = new, 1
  end
  before[i] = before[i] or ''
end
before[4] = changed
return before
