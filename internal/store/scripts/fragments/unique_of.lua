-- include: has_header, unique_part

-- Returns the scope of the unique key of a job with this record, the key, the length of its window, and where the scope is, as
-- unique_part does; or nil.
local function unique_of(record)
  local flags = has_header(record) and #record > 22 and string.byte(record, 4) or 0
  if flags % 8 < 4 then
    return nil
  end
  return unique_part(flags, record, 23, 22 + string.byte(record, 21) * 256 + string.byte(record, 22))
end
