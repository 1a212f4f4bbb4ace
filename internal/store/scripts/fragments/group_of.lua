-- include: has_header

-- Returns the key of the group that a job with this record is of, or nil. It begins with 's' for a serial key, and with 'g' for another.
local function group_of(record)
  if not has_header(record) or string.byte(record, 4) % 2 == 0 or #record < 24 then
    return nil
  end
  return string.sub(record, 24, 23 + string.byte(record, 23))
end
