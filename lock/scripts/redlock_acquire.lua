-- Asks one of the N nodes of a Redlock for a lock and for its vote for a token. A node
-- votes for a token only while the lock is the attempt's, and only for more than it
-- voted for before: its record is a register that never goes back. Where it has none, its
-- clock is one.
--
-- KEYS     1 the lock, 2 its record, 3 the marker of the node's memory
-- ARGV[1]  the attempt's random value
-- ARGV[2]  the lock's TTL, ms
-- ARGV[3]  the proposed token, decimal
-- ARGV[4]  the owner's name
-- ARGV[5]  1: take the lock if it is free; 0: vote only, if it is the attempt's
-- ARGV[6]  what the marker must be; empty: whatever
--
-- Reply    {1, voted, last, now}   the lock is the attempt's. voted is 1 or 0, last the token
--                                  that it voted for before (now if none), now its clock, µs
--          {0, ms, now}            it is not: another holds it for at most so long (-1: for
--                                  ever), or nobody does (-2)
--          {-1}                    the marker is another: the node lost its memory
-- Errors   WRONGTYPE   one of the keys holds another type
--          BADRECORD   the record is none
-- After an error nothing is written, also when the server is out of memory: then the first
-- write is refused, and only the first.
if ARGV[6] ~= '' then
  local marker = redis.pcall('GET', KEYS[3])
  if type(marker) == 'table' then return marker end
  if marker ~= ARGV[6] then return {-1} end
end
local value, t = ARGV[1], tonumber(ARGV[3])
local last, by = read_record(KEYS[2])
if type(last) == 'table' then return last end

local now = clock()
local set = ARGV[5] == '1' and redis.pcall('SET', KEYS[1], value, 'NX', 'PX', ARGV[2])
if not (set and set.ok) then
  local held = redis.pcall('GET', KEYS[1])
  if type(held) == 'table' then return held end
  if not held and set then return set end -- the node takes no writes, which only matters if the lock is free
  if held ~= value then return {0, redis.call('PTTL', KEYS[1]), now} end
end
if last == 0 then last = now end
-- The limit keeps a client whose clock is wrong from using the tokens up.
local hour = 3600000000
if (last < t or last == t and by == value) and t <= math.max(now + hour, last + 1) and t < MAX_TOKEN then
  redis.call('SET', KEYS[2], ARGV[3] .. ' ' .. value .. ' ' .. ARGV[4], 'PX', RECORD_TTL)
  return {1, 1, last, now}
end
return {1, 0, last, now}
