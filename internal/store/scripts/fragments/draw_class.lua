-- A step of claim.lua: draws jobs of one class from the lines of groups. The list and the lines get half of what is wanted each, and what the
-- other can't use. n is how many the list is to give behind the step.
local class, most = tostring(c - 1), want
if n > 0 then
  n = math.min(n, math.floor((want - #popped + seq % 2) / 2)) -- an odd one goes to either side in turn
  most = want - n
end
-- include: draw_turns
n = math.min(want - #popped, waiting[list])
