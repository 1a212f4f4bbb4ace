-- include: has_header

-- Returns a record with one more crash, and how many it has then; or the record as it is and false, if it has no header.
local function crash(record)
  local crashes = has_header(record) and math.min(string.byte(record, 3) + 1, 255)
  if crashes then
    record = string.sub(record, 1, 2) .. string.char(crashes) .. string.sub(record, 4)
  end
  return record, crashes
end
