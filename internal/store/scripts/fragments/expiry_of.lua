-- include: has_header, due_of

-- Returns when a job with this record expires (us) if it hasn't started by then, or nil if it never does. Then, if the record has that part, where
-- it begins. A job that has started has 0 there. One that is held, since it is being moved, doesn't expire meanwhile.
local function expiry_of(record)
  local flags = has_header(record) and #record > 22 and string.byte(record, 4) or 0
  if flags % 16 < 8 then
    return nil
  end
  local first, last = 23, 22 + string.byte(record, 21) * 256 + string.byte(record, 22)
  if flags % 2 == 1 then
    first = first + 1 + string.byte(record, first) -- behind the part of flag 1
  end
  if flags % 4 >= 2 then
    first = first + 8
  end
  if flags % 8 >= 4 then
    first = first + 2 + (string.byte(record, first) or 0) * 256 + (string.byte(record, first + 1) or 0)
  end
  if first + 7 > last or last > #record then
    return nil
  end
  local us, due = 0, due_of(record)
  for i = first, first + 7 do
    us = us * 256 + string.byte(record, i)
  end
  if us == 0 or due >= 9007199254740992 then
    return nil, first
  end
  return math.min(due + math.min(us, 864000000000000), 9007199254740991), first -- 10,000 days; a double holds no more
end
