-- include: line_at, due_of

-- Returns the member of LINED for a job of a group that has this record.
local function line_of(record, key, id)
  return line_at(string.sub(record, 2, 2), key, due_of(record), id)
end
