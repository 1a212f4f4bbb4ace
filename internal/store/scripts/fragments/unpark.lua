-- A step of claim.lua: gives turns to lines whose rates allow a job again, and forgets times that have passed.
local parked = redis.call('ZRANGEBYSCORE', PARKED, '-inf', digits(steady), 'LIMIT', 0, 500)
if #parked > 0 then
  local keys, turns, late = {}, {}, {} -- late: of jobs that were put off
  for i = 1, #parked do
    keys[i] = string.sub(parked[i], 2)
  end
  g.load(keys)
  for i = 1, #parked do
    local class = string.sub(parked[i], 1, 1)
    if class == 'd' then
      late[#late + 1] = keys[i]
    elseif g.state(keys[i], class) == 'w' then -- else the line has become empty since
      g.turn(keys[i], class, turns)
    end
  end
  redis.call('ZREM', PARKED, unpack(parked))
  if #turns > 0 then
    redis.call('ZADD', TURNS, unpack(turns))
  end
  if #late > 0 then
    -- include: put_on
    put_on(late, now)
  end
end
local passed = redis.call('ZRANGEBYSCORE', RATES, '-inf', digits(steady), 'LIMIT', 0, 100) -- that is as if no job had started
if #passed > 0 then
  redis.call('ZREM', RATES, unpack(passed))
  for i = 1, #passed do
    if string.sub(passed[i], 1, 1) == 'h' then
      redis.call('HDEL', LIMITS, passed[i]) -- by which job it was held back
    end
  end
end
