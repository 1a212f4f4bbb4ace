-- include: count

-- Notes that n jobs have changed their state. Every counted change of a queue's jobs passes here, and is counted in stats. Returns the sum.
local function note(change, n)
  return count(STATS, change, n)
end
