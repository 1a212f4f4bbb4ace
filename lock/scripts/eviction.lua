-- Tells by which policy the server may evict keys.
--
-- KEYS   1 a lock, for the server that serves it
-- Reply  the policy; empty if there is no memory limit, the policy is noeviction, or the
--        server doesn't tell
local info = redis.pcall('INFO', 'memory')
if type(info) ~= 'string' then return '' end
local limit = string.match(info, 'maxmemory:(%d+)')
local policy = string.match(info, 'maxmemory_policy:(%S+)')
if not limit or limit == '0' or not policy or policy == 'noeviction' then return '' end
return policy
