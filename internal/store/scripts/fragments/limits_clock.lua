-- include: digits

-- Returns the time by the clock of limits (us). If STATS is to note it, returns what, too. That clock goes as Redis' clock does, but never back: so if
-- Redis' clock is set back, nothing waits longer for a rate or for the end of a hold than it would have. STATS has under 'clock' the time that
-- was seen last, and by how much the clock was ahead of Redis' clock then.
local function limits_clock(now)
  local seen, ahead = string.match(redis.call('HGET', STATS, 'clock') or '', '^(%d+) (%d+)$')
  seen, ahead = tonumber(seen) or 0, tonumber(ahead) or 0
  local at = now + ahead
  if at < seen then
    return seen, digits(seen) .. ' ' .. digits(seen - now)
  elseif at - seen >= 100000 then
    return at, digits(at) .. ' ' .. digits(ahead)
  end
  return at
end
