-- Tells who holds a lock. It writes nothing.
--
-- KEYS   1 the lock, 2 its record
-- Reply  {held, ms, token, owner}   held is 0, or 1 if the lock is held for so many ms (-1: for
--                                   ever); token is the last one granted; owner is empty unless the
--                                   holder is the record's
-- Errors WRONGTYPE   one of the keys holds another type
--        BADRECORD   the record is none
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
local token, by, owner = read_record(KEYS[2])
if type(token) == 'table' then return token end
if not held or held ~= by then owner = '' end
return {held and 1 or 0, redis.call('PTTL', KEYS[1]), decimal(token), owner}
