-- include: digits

-- Part of enqueue.lua. Returns the outcome for the tick of an entry at a time, and whether the entry's last tick is in the future
-- and doesn't count. '1' is for a tick that nobody enqueued before: it is the entry's last from then on.
local function judge_tick(entry, us)
  local ahead = reckons and marks[entry] > reckoned + 10000000
  if us > reckoned then
    return 'e', ahead
  elseif us <= marks[entry] and not ahead then
    return 't', ahead
  elseif us < reckoned - 5000000 then
    return 'l', ahead
  end
  marks[entry] = us
  marked[#marked + 1] = entry
  marked[#marked + 1] = digits(us)
  return '1', ahead
end
