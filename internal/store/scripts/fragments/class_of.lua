-- include: has_header

-- Returns the class under which a job with this record waits: '0', '1', '2', or 's' of a suspect.
local function class_of(record)
  if not has_header(record) then
    return '1'
  end
  return string.byte(record, 3) >= 2 and 's' or string.sub(record, 2, 2)
end
