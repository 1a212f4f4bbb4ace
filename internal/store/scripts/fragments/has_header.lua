-- Whether it begins with a record's header, of whatever version. Else it is kept as it is.
local function has_header(record)
  return #record >= 20 and string.find(record, '^[\1-\31][012]') ~= nil
end
