-- Returns since when one of the N nodes of a Redlock remembers its locks. It leaves a marker
-- "<run_id> <memory> <floor>": the run of the server in which it was written, a random name for
-- what the server remembers since, and the least that a token register counts for in it.
-- Where the marker is gone, or of another run, the node may have forgotten locks and
-- votes, whatever its persistence: so its memory is a new one, with a new name, and it must not
-- count until all locks of before would have expired. A marker of another run is never taken over:
-- a snapshot brings it back as old as everything else.
--
-- KEYS     1 the marker; 2 a key that lives until the node counts
-- ARGV[1]  the server's run_id
-- ARGV[2]  a random name
-- ARGV[3]  for how long a node with a new memory doesn't count, ms
--
-- Reply    {marker, ms}   the marker, and for how long the node doesn't count yet
-- Errors   WRONGTYPE   the marker holds another type

-- How far a token may be ahead of the node's clock when it gets a vote, µs: a client's estimate of
-- that clock is too high by up to the second for which a late reply is awaited.
local LEAD = 2000000

local found = redis.pcall('GET', KEYS[1])
if type(found) == 'table' then return found end
local run = string.match(found or '', '^(%S+) %S+ %d+$')
if run == ARGV[1] then return {found, math.max(redis.call('PTTL', KEYS[2]), 0)} end

local delay = tonumber(ARGV[3])
local marker = ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. decimal(clock() + delay * 1000 + LEAD)
redis.call('SET', KEYS[2], '1', 'PX', delay)
redis.call('SET', KEYS[1], marker)
return {marker, delay}
