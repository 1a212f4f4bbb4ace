-- Returns a time as 8 bytes, big endian, as a record's header has it.
local function stamp(us)
  local b = {}
  for i = 8, 1, -1 do
    b[i] = us % 256
    us = (us - b[i]) / 256
  end
  return string.char(unpack(b))
end
