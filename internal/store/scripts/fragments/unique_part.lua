-- Returns the scope of the unique key of a job with these flags, whose extras are the bytes from..to of text ('s', 'e', 'w' or 't'; 'S' of a job
-- that had it until it started), the key, of 'w' and 't' the length of the window (us), and where the scope is. Returns nil if the job has none.
local function unique_part(flags, text, from, to)
  if flags % 8 < 4 then
    return nil
  end
  local first = from
  if flags % 2 == 1 then
    first = first + 1 + (string.byte(text, first) or 0) -- behind the part of flag 1
  end
  if flags % 4 > 1 then
    first = first + 8 -- behind the part of flag 2
  end
  local high, low, scope = string.byte(text, first, first + 2)
  local last = low and first + 1 + high * 256 + low or to + 1
  if not scope or last > to then
    return nil
  end
  local at, us = first + 2
  first = first + 3
  if scope == 119 or scope == 116 then -- 'w', 't'
    us = 0
    for i = first, first + 7 do
      us = us * 256 + (string.byte(text, i) or 0)
    end
    us, first = math.min(us, 864000000000000), first + 8 -- 10,000 days
  elseif scope ~= 115 and scope ~= 101 and scope ~= 83 then -- 's', 'e', 'S'
    return nil
  end
  if first > last then
    return nil
  end
  return string.char(scope), string.sub(text, first, last), us, at
end
