-- Reports whether a record begins with a header, of any version. A record without one is kept as it is.
local function has_header(record)
  return #record >= 20 and string.find(record, '^[\1-\31][012]') ~= nil
end
