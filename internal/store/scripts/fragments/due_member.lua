-- include: class_of, group_of, later_class

-- Returns the member of DUE for a job with this record that doesn't hold its group, if it has one.
local function due_member(record, id)
  return (group_of(record) and later_class(string.sub(record, 2, 2)) or class_of(record)) .. id
end
