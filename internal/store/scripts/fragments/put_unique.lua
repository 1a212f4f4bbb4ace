-- include: raise_layout, drop_windows

-- A step of enqueue.lua: notes which unique keys the new jobs have.
raise_layout()
local values = {}
for i, key in ipairs(keys_taken) do
  values[2 * i - 1], values[2 * i] = key, keys_held[key]
end
redis.call('HSET', UNIQUE, unpack(values))
if windows then
  redis.call('ZADD', WINDOWS, unpack(windows))
  drop_windows(now, 10 + #windows)
end
if cut_short then
  redis.call('ZREM', WINDOWS, unpack(cut_short)) -- the job that is due then has the key; the window may be of this call
end
