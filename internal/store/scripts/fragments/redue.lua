-- include: stamp, has_header

-- Returns the record with another due time.
local function redue(record, us)
  if not has_header(record) then
    return record
  end
  return string.sub(record, 1, 12) .. stamp(us) .. string.sub(record, 21)
end
