-- Reports whether the wanted records may be too large to be read without measuring them first. Small records never are.
local function large(bytes)
  return not largest or not (largest <= 4096 or want * largest <= bytes)
end
