-- Asks one of the N nodes of a Redlock for a lock and for its vote for a token. A node
-- votes for a token only while the lock is the attempt's, and only for more than it
-- voted for before: its record is a register that never goes back. Where it has none, its
-- clock is one.
--
-- A record that a restart brought back may be older than what the node voted for last: from a
-- snapshot, or from an append-only file that lacks its end. So no record counts for less than the
-- floor of the present memory, which is later than all that was voted for in an earlier one.
--
-- KEYS     1 the lock, 2 its record, 3 the marker of the node's memory
-- ARGV[1]  the attempt's random value
-- ARGV[2]  the lock's TTL, ms
-- ARGV[3]  the proposed token, decimal; 0: a lock is set again, and there is no vote
-- ARGV[4]  the owner's name
-- ARGV[5]  1: take the lock if it is free; 0: vote only, if it is the attempt's
-- ARGV[6]  what the marker must be; empty: whatever
-- ARGV[7]  the floor of the memory that has this marker, µs: the least that a record counts for
-- ARGV[8]  by the node's clock, µs: later than that it is not run; 0: whenever
--
-- Reply    {1, voted, last, now}   the lock is the attempt's. voted is 1 or 0, last the token
--                                  that it voted for before (now if none, the floor if that is
--                                  more), now its clock, µs
--          {0, ms, now}            it is not: another holds it for at most so long (-1: for
--                                  ever), or nobody does (-2)
--          {-1}                    the marker is another: the node lost its memory
--          {-2, now}               it came too late, and did nothing
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

local now, deadline = clock(), tonumber(ARGV[8])
if deadline > 0 and now > deadline then return {-2, now} end
local set = ARGV[5] == '1' and redis.pcall('SET', KEYS[1], value, 'NX', 'PX', ARGV[2])
if not (set and set.ok) then
  local held = redis.pcall('GET', KEYS[1])
  if type(held) == 'table' then return held end
  if not held and set then return set end -- the node takes no writes, which only matters if the lock is free
  if held ~= value then return {0, redis.call('PTTL', KEYS[1]), now} end
end
if last == 0 then last = now end
local floor = tonumber(ARGV[7])
if last < floor then last, by = floor, '' end
-- The limit keeps a client whose clock is wrong from using the tokens up.
local hour = 3600000000
if (last < t or last == t and by == value) and t <= math.max(now + hour, last + 1) and t < MAX_TOKEN then
  redis.call('SET', KEYS[2], ARGV[3] .. ' ' .. value .. ' ' .. ARGV[4], 'PX', RECORD_TTL)
  return {1, 1, last, now}
end
return {1, 0, last, now}
