-- Reads a page of the jobs in a sorted set: those behind an element, which may be gone. It writes nothing.
--
-- KEYS: as named below
-- ARGV: state: whose set is read, 'scheduled', 'dead', 'cancelled', 'completed', 'awaiting', or 'ready' for the lines of groups; score, member: the element; a score of '-inf' and the
--       member '' stand before all; count: how many elements are looked at, at most; room: most bytes of records to
--       return; the first may have more; prefix: of the IDs that are wanted
-- Reply: {'ok', time in us, looked, elements, ids, records}
--        looked: how many elements were looked at; elements: each a member and its score, in the order of the set: by score, then by the
--        bytes of the member. Those behind the first that were looked at had no room; ids, records: of those that are wanted, in the
--        same order; a record is missing where there is none
-- Errors: those of Redis.

local JOBS, DUE, DEAD, CANCELLED, COMPLETED, LINED, AWAITING = unpack(KEYS)
local state, score, member, count, room, prefix = unpack(ARGV)
local list = ({scheduled = DUE, dead = DEAD, cancelled = CANCELLED, completed = COMPLETED, ready = LINED, awaiting = AWAITING})[state]

-- Millions of jobs may have the same score. So the place among them is searched for by halves.
local low, high = redis.call('ZCOUNT', list, '-inf', '(' .. score), redis.call('ZCOUNT', list, '-inf', score)
while low < high do
  local middle = math.floor((low + high) / 2)
  if sorts_before(member, redis.call('ZRANGE', list, middle, middle)[1]) then
    high = middle
  else
    low = middle + 1
  end
end
local elements = redis.call('ZRANGE', list, low, low + tonumber(count) - 1, 'WITHSCORES')
local all = {}
for i = 1, #elements, 2 do
  local id = elements[i]
  if state == 'scheduled' then
    id = string.sub(id, 2) -- without the class
  elseif state == 'ready' then
    id = string.match(id, '^[^\1]+\1' .. string.rep('%d', 16) .. '(.+)$') or id -- without class, group and place
  end
  all[#all + 1] = state == 'awaiting' and string.match(id, '^[sef][^{]*{(.+)$') or id -- without flow and role; those that were cancelled have no record of that name
end
local looked, ids, records = read_records(all, tonumber(room), prefix)
return {'ok', clock(), looked, elements, ids, records}
