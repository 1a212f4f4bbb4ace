-- Renews a session, or opens it; says what there is to do.
--
-- KEYS, ARGV: as named below
--       ttl: how long the session lives from now (us); open: '1' to open it if it is unknown
-- Reply: {'ok', time in us, alive, more, next, expired, held}
--        alive: 0 if the session is unknown or over; it is not revived
--        more, next, expired, held: as in claim.lua; more counts waiting suspects too
-- Errors: those of Redis, before the first write.

local SESSIONS, DUE, HIGH, NORMAL, LOW, SUSPECT, SETTINGS = unpack(KEYS)
local protocol, session, ttl, open = unpack(ARGV)

-- include: clock, digits, standing, upcoming

local now = clock()
local expiry = redis.call('ZSCORE', SESSIONS, session)
local held_back = standing(SETTINGS, protocol)
redis.call('ZCARD', DUE)
local more = 0
for _, list in ipairs({HIGH, NORMAL, LOW, SUSPECT}) do
  more = more + redis.call('LLEN', list)
end

local alive = 0
if expiry and tonumber(expiry) > now or not expiry and open == '1' then
  alive = 1
  -- When Redis is out of memory it still permits this, and with it the next.
  redis.call('ZREM', SESSIONS, '')
  redis.call('ZADD', SESSIONS, digits(now + ttl), session)
end

if held_back ~= '' then
  more = 0
end
local following, expired = -1, {}
if held_back == '' or held_back == 'paused' then
  following, expired = upcoming(DUE, SESSIONS, now)
end
return {'ok', now, alive, more > 0 and 1 or 0, following, expired, held_back}
