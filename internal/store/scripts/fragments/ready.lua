-- Makes jobs ready, in the one place where jobs become so: at the tail of the list of their class, or at its head. The script
-- has the locals lists, the ready lists by class, and held_back, what standing returned. Returns whether a worker is to be woken
-- for them, then the list and how many wait in it.
local function ready(class, ids, first)
  local list = lists[class] or NORMAL
  local waiting
  if first then
    waiting = redis.call('LPUSH', list, unpack(ids))
  else
    waiting = redis.call('RPUSH', list, unpack(ids))
  end
  return held_back == '', list, waiting -- resuming wakes a worker
end
