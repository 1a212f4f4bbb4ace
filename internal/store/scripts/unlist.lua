-- Takes a queue out of the registry of its namespace, unless the call comes late: then the queue may be there anew, and be registered.
--
-- KEYS: as named below
-- ARGV: queue: its name; most: the latest time (us) by this server's clock; '0' to ask for the time
-- Reply: {'ok', time in us} or {'late', time in us}
-- Errors: those of Redis, before the first write.

local REGISTRY = unpack(KEYS)
local queue, most = unpack(ARGV)

local now = clock()
if now > tonumber(most) then
  return {'late', now}
end
redis.call('SREM', REGISTRY, queue)
return {'ok', now}
