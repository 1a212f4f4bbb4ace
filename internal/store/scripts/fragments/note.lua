-- include: count

-- Notes that n jobs have changed their state. Each change that a queue tells of passes here: it is counted in stats.
local function note(change, n)
  count(STATS, change, n)
end
