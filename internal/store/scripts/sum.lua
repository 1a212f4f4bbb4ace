-- Adds up the sizes of the records of jobs that have ended and are kept. It writes nothing.
--
-- KEYS: as named below
-- ARGV: name: of a state, 'dead', 'cancelled' or 'completed'; first, last: which of its jobs, in the order of their ends, from 0
-- Reply: {'ok', counter, members, ended, bytes, digest}
--        counter: the bytes that are counted, '' for nothing; members: how many jobs there are; ended: how many ever came into the state,
--        '' for none. If none of the three has changed, no job has come or gone, or become larger; bytes: of the records of those jobs;
--        digest: of their IDs and sizes
-- Errors: those of Redis.

local JOBS, STATS, DEAD, CANCELLED, COMPLETED = unpack(KEYS)
local name, first, last = unpack(ARGV)

local terminal = terminal_states()
local state = terminal[name]
local sizes, bytes = redis.call('ZRANGE', state.set, first, last), 0
for i = 1, #sizes do
  local size = redis.call('HSTRLEN', JOBS, sizes[i])
  sizes[i] = sizes[i] .. ' ' .. size
  bytes = bytes + size
end
return {'ok', redis.call('HGET', STATS, state.bytes) or '', redis.call('ZCARD', state.set), redis.call('HGET', STATS, name) or '',
  bytes, redis.sha1hex(table.concat(sizes, ','))}
