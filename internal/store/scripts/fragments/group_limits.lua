-- include: limits_of

-- Returns what lines needs to keep the limits of groups. now is the time by the clock of limits, as in all of lines. text is the setting of the limits of all groups. Those of a name
-- are under 'g' and the name: they are for a group and a serial group of that name. A group may also be held back:
-- until when stands in RATES behind an 'h'. Or it is paused: since when stands in LIMITS behind a 'p'. Then no job may hold it.
local function group_limits(text, now)
  local usual = limits_of(text)
  local named = redis.call('HLEN', LIMITS) > 0
  local timed = redis.call('ZCARD', RATES) > 0
  local rated = named or usual.rated
  local l = {bounded = rated or usual.running < math.huge, timed = timed or rated, usual = usual, none = limits_of()}

  -- Reads into the states of groups the limits that they have of their own, and of those that have a rate when their next job may start.
  function l.load(states, keys)
    local own, names, times = {}, {}, {}
    if named then
      for i = 1, #keys do
        names[2 * i - 1], names[2 * i] = 'g' .. string.sub(keys[i], 2), 'p' .. keys[i]
      end
      own = redis.call('HMGET', LIMITS, unpack(names))
      for i = 1, #keys do
        local s, limit = states[keys[i]], own[2 * i - 1]
        if limit then
          s.limits = limits_of(limit, text)
          s.most = string.byte(keys[i]) == 115 and 1 or s.limits.running
        end
        s.paused = own[2 * i]
        if s.paused then
          s.most = 0
        end
      end
    end
    if timed then
      for i = 1, #keys do
        times[2 * i - 1], times[2 * i] = keys[i], 'h' .. keys[i]
      end
      times = redis.call('ZMSCORE', RATES, unpack(times))
      for i = 1, #keys do
        local s = states[keys[i]]
        s.at, s.held_until = times[2 * i - 1], times[2 * i]
        local bound = s.limits.bound(s.at, now)
        if bound then
          s.at = bound
          redis.call('ZADD', RATES, bound, keys[i])
        end
      end
    end
  end

  function l.allowed(s, now)
    local held = (tonumber(s.held_until or nil) or 0) - now
    if held > 0 then
      return 0, held
    end
    return s.limits.allowed(s.at, now)
  end

  -- Notes that n jobs start, of a group that has a rate.
  function l.started(key, s, n, now)
    s.at = s.limits.started(s.at, now, n)
    redis.call('ZADD', RATES, s.at, key)
  end

  return l
end
