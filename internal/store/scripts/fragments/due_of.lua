-- Returns the time (us) at which a job with this record was last due. The record has a header.
local function due_of(record)
  local a, b, c, d, e, f, g, h = string.byte(record, 13, 20)
  return ((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g) * 256 + h
end
