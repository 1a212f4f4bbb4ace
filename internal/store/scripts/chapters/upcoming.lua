-- When a claim is to be made again.

-- Returns what is to be done next: microseconds until a job is due, a parked line may go on, a job that hasn't started expires or the first session
-- expires (-1 for never, 0 if a job is due already), and up to 8 expired sessions. steady is the time by the clock of limits, by which lines are parked. They
-- and expires aren't looked at if plain is set: it is a plain queue. A parked line goes on only with a claim that may take jobs: so it counts only if gives
-- says that the queue gives the session some.
local function upcoming(due, sessions, now, parked, expires, gives, steady, plain)
  local following, expired = -1, {}
  local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
  if head[2] then
    following = math.max(tonumber(head[2]) - now, 0)
  end
  head = not plain and gives and redis.call('ZRANGE', parked, 0, 0, 'WITHSCORES') or {}
  if head[2] and (following < 0 or tonumber(head[2]) - steady < following) then
    following = math.max(tonumber(head[2]) - steady, 0)
  end
  head = not plain and redis.call('ZRANGE', expires, 0, 0, 'WITHSCORES') or {}
  if head[2] and (following < 0 or tonumber(head[2]) - now < following) then
    following = math.max(tonumber(head[2]) - now, 0)
  end
  head = redis.call('ZRANGE', sessions, 0, 0, 'WITHSCORES')
  if head[2] then
    local ends = tonumber(head[2]) - now
    if ends <= 0 then
      expired = redis.call('ZRANGEBYSCORE', sessions, '-inf', digits(now), 'LIMIT', 0, 8)
      head = redis.call('ZRANGEBYSCORE', sessions, '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      ends = head[2] and tonumber(head[2]) - now
    end
    if ends and (following < 0 or ends < following) then
      following = ends
    end
  end
  return following, expired
end
