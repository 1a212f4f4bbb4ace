-- Whether the records wanted may be too large to be read unmeasured. Small ones never are.
local function large(bytes)
  return not largest or not (largest <= 4096 or want * largest <= bytes)
end
