-- What stands behind the header of a job with extras: '+', flags and the extras, of which the length and the
-- extras themselves stand before the envelope.
local function with_extras(special, envelope)
  local n = #special - 2
  return string.char(math.floor(n / 256), n % 256) .. string.sub(special, 3) .. envelope
end
