-- include: count_of

-- Corrects what RUNNING has for a session. Returns whether it was wrong.
local function recount(session, sessions)
  local has, right = count_of(session, sessions)
  if right then
    redis.call('HSET', RUNNING, session, right)
  else
    redis.call('HDEL', RUNNING, session)
  end
  return has ~= right
end
