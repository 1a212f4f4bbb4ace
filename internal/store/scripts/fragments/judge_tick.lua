-- A step of enqueue.lua: finds the outcome for a tick. It is '1' if nobody enqueued the tick before, or 'p' if its entry is paused. Then
-- the tick becomes the last one of its entry. A tick that is to be made up for must be of the plan in force, and come after that began.
local plan, since = unpack(plans[entry])
ahead = reckons and marks[entry] > reckoned + 10000000
if us > reckoned then
  outcome = 'e'
elseif detail.plan and plan and detail.plan ~= plan then
  outcome = 'x'
elseif us <= marks[entry] and not ahead then
  outcome = 't'
elseif us < reckoned - 5000000 and not (detail.plan and plan and us > since and us >= reckoned - detail.bound) then
  outcome = 'l'
else
  marks[entry] = us
  marked = marked or {}
  marked[#marked + 1] = entry
  marked[#marked + 1] = digits(us)
  if paused[entry] then
    outcome = 'p'
  end
end
