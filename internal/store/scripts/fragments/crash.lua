-- include: has_header

-- Adds a crash to a record. Returns the record and its number of crashes. If it has no header, returns it unchanged, and false.
local function crash(record)
  local crashes = has_header(record) and math.min(string.byte(record, 3) + 1, 255)
  if crashes then
    record = string.sub(record, 1, 2) .. string.char(crashes) .. string.sub(record, 4)
  end
  return record, crashes
end
