-- Sets what the queue keeps of its dead jobs, and by themselves of its cancelled ones.
--
-- KEYS: as named below
-- ARGV: 1 '1' to set all of it, '0' to set only what isn't set; 2 most jobs, 3 most bytes of them, 4 how long they are
--       kept (us); '' for the default
-- Reply: {jobs, bytes, us}: what is set then; '' for the default
-- Errors: those of Redis, before the first write.

local SETTINGS = unpack(KEYS)
local before = redis.call('HMGET', SETTINGS, 'keep_jobs', 'keep_bytes', 'keep_us')
local set, gone, now = {}, {}, {}
for i, field in ipairs({'keep_jobs', 'keep_bytes', 'keep_us'}) do
  local old, new = before[i] or '', ARGV[i + 1]
  if ARGV[1] == '0' and old ~= '' or new == old then
    new = old
  elseif new ~= '' then
    set[#set + 1] = field
    set[#set + 1] = new
  else
    gone[#gone + 1] = field
  end
  now[i] = new
end
-- When Redis is out of memory it still permits this, and with it all that follows: to keep less is a way out.
redis.call('HDEL', SETTINGS, '')
if #set > 0 then
  redis.call('HSET', SETTINGS, unpack(set))
end
if #gone > 0 then
  redis.call('HDEL', SETTINGS, unpack(gone))
end
return now
