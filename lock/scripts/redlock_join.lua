-- Tells a client since when one of the N nodes of a Redlock remembers its locks. It leaves a
-- marker "<run_id> <memory> <lasting>": in which run of the server it was written, a random
-- name for what the server remembers since, and 1 if by its settings all of that
-- outlives the end of the process. Where the marker is gone or of another run, locks may
-- have been forgotten, and the node must not count until all of them would have expired.
--
-- KEYS     1 the marker; 2 a key that lives until the node counts
-- ARGV[1]  the server's run_id
-- ARGV[2]  a random name
-- ARGV[3]  for how long a node without memory doesn't count, ms
-- ARGV[4]  1 if by its settings what the server holds outlives its end, else 0
--
-- Reply    {marker, ms}   the marker, and for how long the node doesn't count yet
-- Errors   WRONGTYPE   one of the keys holds another type
local found = redis.pcall('GET', KEYS[1])
if type(found) == 'table' then return found end
local run, memory, lasting = string.match(found or '', '^(%S+) (%S+) ([01])$')
if run == ARGV[1] then return {found, math.max(redis.call('PTTL', KEYS[2]), 0)} end

if run and lasting == '1' and ARGV[4] == '1' then
  local marker = ARGV[1] .. ' ' .. memory .. ' 1'
  redis.call('SET', KEYS[1], marker)
  return {marker, math.max(redis.call('PTTL', KEYS[2]), 0)}
end
local marker = ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[4]
redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
redis.call('SET', KEYS[1], marker)
return {marker, tonumber(ARGV[3])}
