-- include: count

-- Notes that n jobs have changed their state. Every counted change of a queue's jobs passes here, and is counted in stats.
local function note(change, n)
  count(STATS, change, n)
end
