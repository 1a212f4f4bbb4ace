-- include: class_of

-- A step of claim.lua: a job that was drawn from its line holds its group already. If it isn't there, or has ended, it holds it no more. A suspect isn't
-- granted: it holds its group, and waits among the suspects.
if not there then
  g.leave({from[i]})
elseif (string.byte(records[i], 3) or 0) >= 2 and class_of(records[i]) == 's' then -- the first test is quicker, and is true for few
  there, seen[id] = false, true
  local _, length = ready(SUSPECT, {id}, false, held_back)
  waiting[SUSPECT] = length
  crowded = true -- so the call is made again
end
