-- include: note

-- Ends jobs, in the one place where jobs end. The script has the locals limits and now, and noted: whether notes may be kept
-- of them. Completed ones are deleted, and those that somebody deletes. For another state ids has one id: the job is kept, with its record replaced by another
-- unless that is nil. So is a completed one for which bounds says how many of them are kept. A job whose record says that it isn't to be kept is deleted
-- in any state. A job whose record is missing ends as completed,
-- and is not counted. Returns how many older jobs were dropped for it, or nil.
-- Take the ids out of INFLIGHT afterwards: a user who isn't permitted a command loses no job then.
local function finish(state, ids, record, bounds)
  local n, dropped = 1, nil
  local gone, own = state == 'completed' and not bounds or state == 'deleted', nil
  if not gone then
    -- What isn't needed for completed jobs is made here, and below: it costs them nothing.
    -- include: own_age
    own = own_age(record or redis.call('HGET', JOBS, ids[1]) or '')
  end
  if gone or own == 0 then
    n = redis.call('HDEL', JOBS, unpack(ids))
    dropped = own
  else
    local terminal
    -- include: terminal_states, retain, digits
    dropped = retain(terminal[state], ids[1], record, own, bounds or limits, now)
    if state == 'dead' and limits[4] then
      redis.call('HSET', NOTES, 'dead ' .. ids[1], digits(now)) -- until a worker has copied the job
    end
  end
  if noted then
    redis.call('HDEL', NOTES, unpack(ids))
  end
  if n > 0 then
    note(state, n)
  end
  return dropped
end
