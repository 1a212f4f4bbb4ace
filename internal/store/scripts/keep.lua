-- Sets what the queue keeps of its dead jobs, and of its cancelled ones, which count apart.
--
-- KEYS, ARGV: as named below
--       all: '1' to set all that follows, '0' to set only what isn't set
--       keep_jobs, keep_bytes, keep_us: most jobs, most bytes of them, how long they are kept (us); '' for what stays as it is
-- Reply: {jobs, bytes, us}: what is set then; '' for what isn't
-- Errors: those of Redis, before the first write.

local SETTINGS = unpack(KEYS)
local all, keep_jobs, keep_bytes, keep_us = unpack(ARGV)

-- include: retention

local before = redis.call('HMGET', SETTINGS, 'keep_jobs', 'keep_bytes', 'keep_us')
local known = retention(SETTINGS, {})
-- When Redis is out of memory it still permits this, and with it all that follows: to keep less is a way out.
redis.call('HDEL', SETTINGS, '')
local wanted = {keep_jobs, keep_bytes, keep_us}
for i, field in ipairs({'keep_jobs', 'keep_bytes', 'keep_us'}) do
  local new = wanted[i]
  if new ~= '' and new ~= before[i] and (all == '1' or not known[i]) then
    redis.call('HSET', SETTINGS, field, new)
    before[i] = new
  end
  before[i] = before[i] or ''
end
return before
