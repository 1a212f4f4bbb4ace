-- include: due_member

-- Returns whether a job is dead, or is held for a move: then its record says what it was.
local function dead_or_held(id, jobs, due, dead)
  if redis.call('ZSCORE', dead, id) then
    return true
  end
  local record = redis.call('HGET', jobs, id)
  return record and tonumber(redis.call('ZSCORE', due, due_member(record, id)) or 0) == 9007199254740992 -- held_until, as in put.lua
end
