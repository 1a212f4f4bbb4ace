-- Reads a page of a list of ready jobs: those behind an anchor, which is a job that was seen there before. Meanwhile jobs may have
-- left the list at its head, or anywhere, and come in at its head. So the anchor is looked for in a part of the list. It writes nothing.
--
-- KEYS: as named below
-- ARGV: class: whose list is read, '0', '1', '2' or 's'; first, last: the part of the list; room: most bytes of records to
--       return; the first may have more; prefix: of the IDs that are wanted; then for each anchor, the one that stood last first: id,
--       stamp: bytes 5 to 20 of its record. A job that left and came back at the tail has another stamp, and is no anchor
-- Reply: {'ok', time in us, length, from, anchor, looked, id, stamp, ids, records}
--        length: how many jobs there are in the part; from: position of the anchor in it, from 1. It is 0 if no anchor is there: nothing is
--        read then, unless the part begins at the head: what stood before the anchors is gone, too, and all is read; anchor: which of
--        those of the call it is, from 1, or 0; looked: how many
--        jobs behind the anchor were looked at; id, stamp: of the last of them; ids, records: of those that are wanted; a record is
--        missing where there is none
-- Errors: those of Redis.

local JOBS, HIGH, NORMAL, LOW, SUSPECT = unpack(KEYS)
local fixed = 5 -- arguments before the anchors
local class, first, last, room, prefix = unpack(ARGV, 1, fixed)
local list = ({['0'] = HIGH, ['1'] = NORMAL, ['2'] = LOW, ['s'] = SUSPECT})[class]

local function stamp_of(id)
  return string.sub(redis.call('HGET', JOBS, id) or '', 5, 20)
end

local part = redis.call('LRANGE', list, first, last)
local from, anchor, at = 0, 0, {}
for i = #part, 1, -1 do
  at[part[i]] = i
end
for i = fixed + 1, #ARGV, 2 do
  local id, stamp = unpack(ARGV, i, i + 1)
  anchor = anchor + 1
  if at[id] and stamp_of(id) == stamp then
    from = at[id]
    break
  end
end
if from == 0 then
  anchor = 0
end
local behind = {}
if from > 0 or tonumber(first) == 0 then
  for i = from + 1, #part do
    behind[#behind + 1] = part[i]
  end
end
local looked, ids, records = read_records(behind, tonumber(room), prefix)
local seen = behind[looked]
return {'ok', clock(), #part, from, anchor, looked, seen or '', seen and stamp_of(seen) or '', ids, records}
