-- Reads the jobs that ended last, the last one first. If records say how long their jobs are kept, it reads as many of these jobs besides: those
-- that are dropped last. It writes nothing.
--
-- KEYS: as named below
-- ARGV: state: 'dead' or 'cancelled'; count: how many, at most; room: most bytes of records to return; the first may have more
-- Reply: {'ok', time in us, looked, elements, ids, records}
--        looked, elements, ids, records: as of page.lua, but in another order: one whose record says how long it is kept stands behind each of the others
-- Errors: those of Redis.

local JOBS, DEAD, CANCELLED = unpack(KEYS)
local state, count, room = unpack(ARGV)
local list = ({dead = DEAD, cancelled = CANCELLED})[state]

-- The two kinds of scores are those of the chapter retention.
local last = redis.call('ZRANGE', list, '+inf', 0, 'BYSCORE', 'REV', 'LIMIT', 0, count, 'WITHSCORES')
local own = redis.call('ZRANGE', list, '(0', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, count, 'WITHSCORES')
local elements, all = {}, {}
for i = 1, math.max(#last, #own), 2 do
  for _, some in ipairs({last, own}) do
    if some[i] then
      elements[#elements + 1] = some[i]
      elements[#elements + 1] = some[i + 1]
      all[#all + 1] = some[i]
    end
  end
end
local looked, ids, records = read_records(all, tonumber(room), '')
return {'ok', clock(), looked, elements, ids, records}
