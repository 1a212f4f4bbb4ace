-- include: has_header

-- Returns how long (us) a job is kept after it has ended, as its record says: 0 if it isn't kept at all, nil if the record doesn't say it.
local function own_age(record)
  local flags = has_header(record) and #record > 22 and string.byte(record, 4) or 0
  if flags % 4 < 2 then
    return nil
  end
  local first, size = 23, string.byte(record, 21) * 256 + string.byte(record, 22)
  if flags % 2 == 1 then
    first = 24 + string.byte(record, 23) -- behind the part of flag 1
  end
  if first + 7 > 22 + size or 22 + size > #record then
    return nil
  end
  local us = 0
  for i = first, first + 7 do
    us = us * 256 + string.byte(record, i)
  end
  return math.min(us, 864000000000000) -- 10,000 days
end
