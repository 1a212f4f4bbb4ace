-- Renews a session, or opens it; says what there is to do.
--
-- KEYS: 1 sessions, 2 due, 3 ready:high, 4 ready:normal, 5 ready:low, 6 ready:suspect
-- ARGV: 1 session, 2 how long it lives from now (us), 3 '1' to open it if it is unknown
-- Reply: {'ok', time in us, alive, more, next, expired}
--        alive: 0 if the session is unknown or over; it is not revived
--        more, next, expired: as in claim.lua; more counts waiting suspects too
-- Errors: those of Redis, before the first write.

local now = clock()
local expiry = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZCARD', KEYS[2])
local more = 0
for k = 3, 6 do
  more = more + redis.call('LLEN', KEYS[k])
end

local alive = 0
if expiry and tonumber(expiry) > now or not expiry and ARGV[3] == '1' then
  alive = 1
  -- When Redis is out of memory it still permits this, and with it the next.
  redis.call('ZREM', KEYS[1], '')
  redis.call('ZADD', KEYS[1], digits(now + ARGV[2]), ARGV[1])
end

local following, expired = upcoming(KEYS[2], KEYS[1], now)
return {'ok', now, alive, more > 0 and 1 or 0, following, expired}
