-- include: drop_windows

-- A step of enqueue.lua: notes which unique keys the new jobs have.
redis.call('HSET', UNIQUE, unpack(keys_taken))
if windows then
  redis.call('ZADD', WINDOWS, unpack(windows))
  drop_windows(now, 10 + #windows)
end
if cut_short then
  redis.call('ZREM', WINDOWS, unpack(cut_short)) -- the job that is due then has the key; the window may be of this call
end
