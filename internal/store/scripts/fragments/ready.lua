-- Makes jobs ready. This is the only place that does so. It adds them to the tail of a ready list, or to its head if first is true.
-- held_back is what standing returned. Returns whether to wake a worker for them, and the length of the list.
local function ready(list, ids, first, held_back)
  local waiting
  if first then
    waiting = redis.call('LPUSH', list, unpack(ids))
  else
    waiting = redis.call('RPUSH', list, unpack(ids))
  end
  return held_back == '', waiting -- no wake-up while the queue is held back: resuming it wakes a worker
end
