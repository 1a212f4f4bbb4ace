-- Reads the jobs that ended last, the last one first. It writes nothing.
--
-- KEYS: as named below
-- ARGV: state: 'dead' or 'cancelled'; count: how many, at most; room: most bytes of records to return; the first may have more
-- Reply: {'ok', time in us, looked, elements, ids, records}
--        as of page.lua, but the elements are in the other order
-- Errors: those of Redis.

local JOBS, DEAD, CANCELLED = unpack(KEYS)
local state, count, room = unpack(ARGV)
local list = ({dead = DEAD, cancelled = CANCELLED})[state]

-- include: clock, read_records

local last = redis.call('ZRANGE', list, -tonumber(count), -1, 'WITHSCORES')
local elements, all = {}, {}
for i = #last - 1, 1, -2 do
  elements[#elements + 1] = last[i]
  elements[#elements + 1] = last[i + 1]
  all[#all + 1] = last[i]
end
local looked, ids, records = read_records(all, tonumber(room), '')
return {'ok', clock(), looked, elements, ids, records}
