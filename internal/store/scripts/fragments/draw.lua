-- A step of claim.lua: takes ids from the ready lists, as many as are wanted and as fit into the reply.
local popped = {}
local full = false -- some were left since their records have no room in the reply
local flags = {} -- of the first ones, which are suspects
local from = {} -- by number: the group of one that was drawn from its line
local function pop(list, n)
  local ids = redis.call('LPOP', list, n)
  waiting[list] = waiting[list] - #ids
  if #popped == 0 then
    popped = ids
  else
    for i = 1, #ids do
      popped[#popped + 1] = ids[i]
    end
  end
end
if hold > 0 and want > 0 and waiting[SUSPECT] > 0 then
  -- include: suspects_among
  flags, crowded, reopens = suspects_among(math.min(want, 16))
  if #flags > 0 then
    pop(SUSPECT, #flags)
    suspects_ready = true
  end
end
-- No record is read before its size is known to be within bounds.
local measure = large(room)
for c, list in ipairs({HIGH, NORMAL, LOW}) do
  local n = math.min(want - #popped, waiting[list])
  if g and not full then
    -- include: draw_class
  end
  if n > 0 and not full then
    if measure then
      -- include: fitting
    end
    if n > 0 then
      pop(list, n)
    end
  end
end
