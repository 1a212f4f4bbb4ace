-- include: class_of

-- A step of claim.lua: a suspect that was drawn from its line isn't granted. It holds its group from now on, and waits among the suspects.
if class_of(records[i]) == 's' then
  there, seen[id] = false, true
  g.hold(from[i])
  local _, length = ready(SUSPECT, {id}, false, held_back)
  waiting[SUSPECT] = length
  crowded = true -- so the call is made again
end
