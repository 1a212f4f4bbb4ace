-- Renews a session, or opens it; says what there is to do. Takes statistics along, if the session is alive.
--
-- KEYS, ARGV: as named below; LANE is of the batches of times
--       protocol: the newest layout that the caller knows; session: its ID; worker: as in claim.lua
--       ttl: how long the session lives from now (us); open: '1' to open it if it is unknown;
--       address: where it waits for wake-ups, '' if it doesn't
--       seq, waited, ran: as in close.lua
-- Reply: {'ok', time in us, alive, more, next, expired, withheld, slots, heard, idle, cancels}
--        alive: 0 if the session is unknown or over; it is not revived
--        more, next, expired, withheld: as in claim.lua; more counts waiting suspects too, and is 0 while the queue's own limits let none start
--        slots: as in claim.lua; heard: 0 if nobody listens at the address; idle: 1 if it is registered to be woken;
--        cancels: how many jobs of the queue were cancelled and still run
-- Errors: those of Redis, and 'LAYOUT n signalbox: ...' as in enqueue.lua for a session that is unknown, if the layout is older; before the first write.

local LANE, SESSIONS, DUE, IDLE, STATS, HISTORY, HIGH, NORMAL, LOW, SUSPECT, CANCELS, SETTINGS, TURNS, RUNNING, RATES, PARKED, EXPIRES = unpack(KEYS)
local protocol, session, ttl, open, address, worker, seq, waited, ran = unpack(ARGV)

local now = clock()
local expiry = redis.call('ZSCORE', SESSIONS, session)
local withheld, slots, of_queue, _, _, begins = read_settings(SETTINGS, STATS, protocol, worker)
if (tonumber(withheld) or 999) < tonumber(protocol) and not expiry then
  return other_layout(withheld, protocol)
end
local drained = open == '1' and withheld == 'stop' and string.find(redis.call('HGET', SETTINGS, 'quiet:' .. worker), ' drains$')
if drained then -- it has drained before, and runs again
  withheld = redis.call('HEXISTS', SETTINGS, 'paused') == 1 and 'paused' or ''
end
redis.call('ZCARD', DUE)
local steady, seen = now, nil
if redis.call('ZCARD', PARKED) > 0 then
  steady, seen = limits_clock(now)
end
redis.call('ZCARD', EXPIRES)
local cancels = redis.call('HLEN', CANCELS)
local idle = redis.call('ZSCORE', IDLE, address)
local more = redis.call('ZCARD', TURNS)
for _, list in ipairs({HIGH, NORMAL, LOW, SUSPECT}) do
  more = more + redis.call('LLEN', list)
end
local pause = 0 -- us until the queue's rate, or the end of its hold, allows a start
if more > 0 and withheld == '' then
  local at, held_until = unpack(redis.call('ZMSCORE', RATES, '', 'h'))
  if of_queue or held_until then
    -- While these let no job start, a claim would be in vain.
    local by_limits = limits_clock(now)
    local queue = limits_of(of_queue)
    local ends = (tonumber(held_until or nil) or 0) - by_limits
    local spare = 0
    if ends > 0 then
      pause = ends
    elseif queue.bound(at, by_limits) then
      spare = 1 -- the rate was changed: a claim writes what at can be at most
    else
      spare, pause = queue.allowed(at, by_limits)
    end
    if spare > 0 and queue.running < math.huge then
      spare = queue.running
      for _, n in ipairs(redis.call('HVALS', RUNNING)) do
        spare = spare - (tonumber(n) or 0)
      end
    end
    if spare <= 0 then
      more = 0
    end
  end
end

local alive = 0
if expiry and tonumber(expiry) > now or not expiry and open == '1' then
  alive = 1
  -- When Redis is out of memory it still permits this, and with it the next.
  redis.call('ZREM', SESSIONS, '')
  redis.call('ZADD', SESSIONS, digits(now + ttl), session)
  if drained then
    redis.call('HDEL', SETTINGS, 'quiet:' .. worker)
  end
  begin(SETTINGS, STATS, begins)
  if seen then
    redis.call('HSET', STATS, 'clock', seen)
  end
  sample(LANE, STATS, HISTORY, now, seq, waited, ran)
end

if withheld ~= '' then
  more = 0
end
local following, expired = -1, {}
if not tonumber(withheld) then
  following, expired = upcoming(DUE, SESSIONS, now, PARKED, EXPIRES, withheld == '', steady)
  if pause > 0 and (following < 0 or pause < following) then
    following = pause
  end
end
local heard = address == '' or send(address, 'renewed') ~= 0
return {'ok', now, alive, more > 0 and 1 or 0, following, expired, withheld, slots, heard and 1 or 0, idle and 1 or 0, cancels}
