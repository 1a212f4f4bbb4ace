-- Deletes a lock if it is the holder's and nobody waits for it, which is what most releases
-- find. Else it changes nothing, and release.lua is to say what there is.
--
-- KEYS     1 the lock, 2 its waiting line
-- ARGV[1]  the holder's random value
--
-- Reply    1 released; 0 not
if redis.pcall('GET', KEYS[1]) == ARGV[1] and redis.pcall('ZCARD', KEYS[2]) == 0 then
  return redis.call('DEL', KEYS[1])
end
return 0
