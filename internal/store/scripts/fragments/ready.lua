-- Makes jobs ready, in the one place where jobs become so: at the tail of the ready list of their class, or at its head. held_back
-- is what standing returned. Returns whether a worker is to be woken for them, and how many wait in the list.
local function ready(list, ids, first, held_back)
  local waiting
  if first then
    waiting = redis.call('LPUSH', list, unpack(ids))
  else
    waiting = redis.call('RPUSH', list, unpack(ids))
  end
  return held_back == '', waiting -- resuming wakes a worker
end
