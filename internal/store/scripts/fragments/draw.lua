-- include: large, suspects_among

-- Part of claim.lua. Takes as many ids from the ready lists as are wanted, and as there is room for. Returns them, the marks of
-- those that are suspects, and whether some were left since their records have no room in the reply.
local function draw()
  local popped, full = {}, false
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
  -- How many of the first n ids of a list have records that there is room for.
  local function fitting(list, n)
    for i, id in ipairs(redis.call('LRANGE', list, 0, n - 1)) do
      local size = redis.call('HSTRLEN', JOBS, id)
      if size > room and #popped + i > 1 then
        full = true
        return i - 1
      end
      room = room - size
    end
    return n
  end
  local marks = {}
  if hold > 0 and want > 0 and waiting[SUSPECT] > 0 then
    marks, crowded = suspects_among(math.min(want, 8))
    if #marks > 0 then
      pop(SUSPECT, #marks)
      suspects_ready = true
    end
  end
  -- No record is read before its size is known to be within bounds.
  local measure = large(room)
  for _, list in ipairs({HIGH, NORMAL, LOW}) do
    local n = math.min(want - #popped, waiting[list])
    if n > 0 and not full then
      n = measure and fitting(list, n) or n
      if n > 0 then
        pop(list, n)
      end
    end
  end
  return popped, marks, full
end
