-- Tells by which policy the server may evict keys, and what its clock shows.
--
-- KEYS   1 a lock, for the server that serves it
-- Reply  {policy, now}: now in µs; policy is empty if there is no memory limit, the policy is noeviction, or the
--        server doesn't tell
local info = redis.pcall('INFO', 'memory')
if type(info) ~= 'string' then return {'', (clock())} end
local limit = string.match(info, 'maxmemory:(%d+)')
local policy = string.match(info, 'maxmemory_policy:(%S+)')
if not limit or limit == '0' or not policy or policy == 'noeviction' then return {'', (clock())} end
return {policy, (clock())}
