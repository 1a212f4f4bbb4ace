-- Returns where among the extras of a record with these flags the part of flag 32 begins, or would begin: behind those of the flags 1, 2, 4 and 8.
local function past_at(flags, extras)
  local at = 1
  if flags % 2 == 1 then
    at = at + 1 + (string.byte(extras, at) or 0)
  end
  if flags % 4 >= 2 then
    at = at + 8
  end
  if flags % 8 >= 4 then
    at = at + 2 + (string.byte(extras, at) or 0) * 256 + (string.byte(extras, at + 1) or 0)
  end
  if flags % 16 >= 8 then
    at = at + 8
  end
  return at
end

-- Returns the flags of a record that has a header, its extras, and where its envelope begins. Returns nil if it ends in its extras.
local function extras_of(record)
  local flags = string.byte(record, 4)
  if flags == 0 then
    return flags, '', 21
  end
  local stop = #record > 21 and 22 + string.byte(record, 21) * 256 + string.byte(record, 22) or math.huge
  if stop > #record then
    return nil
  end
  return flags, string.sub(record, 23, stop), stop + 1
end

-- Returns what a record with a header says of its job's crashes in the part of flag 32: how many deliveries in a row have ended by themselves since
-- the last crash, and how long the job had run at the last one that counted (ms), 0 if that isn't known or if a later one didn't count.
local function past_of(record)
  local flags, extras = extras_of(record)
  if not flags or flags % 64 < 32 then
    return 0, 0
  end
  local at = past_at(flags, extras)
  local survived, a, b, c, d = string.byte(extras, at, at + 4)
  if not d then
    return 0, 0
  end
  return survived, ((a * 256 + b) * 256 + c) * 256 + d
end

-- Returns a record with a header with another part of flag 32, as past_of returns it. Without survived it has none from then on.
local function with_past(record, survived, ms)
  local flags, extras, envelope = extras_of(record)
  if not flags then
    return record
  end
  local at, part, has = past_at(flags, extras), '', flags % 64 >= 32
  if survived then
    part = string.char(survived, math.floor(ms / 16777216), math.floor(ms / 65536) % 256, math.floor(ms / 256) % 256, ms % 256)
  end
  extras = string.sub(extras, 1, at - 1) .. part .. string.sub(extras, has and at + 5 or at)
  flags = flags - (has and 32 or 0) + (survived and 32 or 0)
  if flags > 0 then
    extras = string.char(math.floor(#extras / 256), #extras % 256) .. extras
  end
  return string.sub(record, 1, 3) .. string.char(flags) .. string.sub(record, 5, 20) .. extras .. string.sub(record, envelope)
end
