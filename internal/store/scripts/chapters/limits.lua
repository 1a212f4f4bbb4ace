-- How many jobs may run, and how many may start in a time: of the queue and of its groups.

-- Returns the time by the clock of limits (us). If STATS is to note it, returns what, too. That clock goes as Redis' clock does, but never back: so if
-- Redis' clock is set back, nothing waits longer for a rate or for the end of a hold than it would have. STATS has under 'clock' the time that
-- was seen last, and by how much the clock was ahead of Redis' clock then.
local function limits_clock(now)
  local seen, ahead = string.match(redis.call('HGET', STATS, 'clock') or '', '^(%d+) (%d+)$')
  seen, ahead = tonumber(seen) or 0, tonumber(ahead) or 0
  local at = now + ahead
  if at < seen then
    return seen, digits(seen) .. ' ' .. digits(seen - now)
  elseif at - seen >= 100000 then
    return at, digits(at) .. ' ' .. digits(ahead)
  end
  return at
end

-- Returns the limits that a setting has. Without a setting, or with one that can't be read, there is no limit. usual is that of all groups, for the setting of a
-- single one: where that has '-' for how many jobs run, or for how many start, it is as usual. running is how many jobs may run
-- at a time. The rate is kept by the generic cell rate algorithm, as virtual scheduling (ITU-T I.371). In its methods at is when the next
-- job would start if jobs started evenly, and false or nil if none has started.
local function limits_of(text, usual)
  local running, jobs, per, burst = string.match(text or '', '^([%d-]+) ([%d-]+) (%d+) (%d+)$')
  if running == '-' or jobs == '-' then
    local r, j, p, b = string.match(usual or '', '^(%d+) (%d+) (%d+) (%d+)$')
    if running == '-' then
      running = r
    end
    if jobs == '-' then
      jobs, per, burst = j, p, b
    end
  end
  local l = {running = tonumber(running) or 0, rated = (tonumber(jobs) or 0) > 0}
  if l.running == 0 then
    l.running = math.huge
  end
  if not l.rated then
    function l.allowed()
      return math.huge, 0
    end
    function l.bound()
    end
    return l
  end
  jobs, per, burst = tonumber(jobs), tonumber(per), math.max(tonumber(burst), 1)

  -- Returns how far at is ahead of now.
  local function ahead(at, now)
    return math.max((tonumber(at or nil) or now) - now, 0)
  end

  -- Returns the time that at can be at most, if it is later: it is from before the rate was changed. It has to be written in place of at, or it
  -- would be as far ahead at the next look.
  function l.bound(at, now)
    local most = now + math.ceil(burst * per / jobs)
    return (tonumber(at or nil) or 0) > most and digits(most) or nil
  end

  -- Returns how many jobs may start now, and if none may, how long it is until one may (us).
  function l.allowed(at, now)
    local left = (burst - 1) * per - ahead(at, now) * jobs
    if left < 0 then
      return 0, math.ceil(-left / jobs)
    end
    return math.floor(left / per) + 1, 0
  end

  -- Returns what at is after n jobs have started.
  function l.started(at, now, n)
    return digits(now + ahead(at, now) + math.ceil(n * per / jobs))
  end

  return l
end

-- Returns what lines_of_groups needs to keep the limits of groups. now is the time by the clock of limits, as in all of it. text is the setting of the limits
-- of all groups. Those of a name are under 'g' and the name: they are for a group and a serial group of that name. A group may also be held back: until when
-- stands in RATES behind an 'h'. Or it is paused: since when stands in LIMITS behind a 'p'. Then no job may hold it.
local function limits_of_groups(text, now)
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
    local held_back = (tonumber(s.held_until or nil) or 0) - now
    if held_back > 0 then
      return 0, held_back
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

-- Reports whether the queue has a limit of running jobs.
local function is_limited()
  return limits_of(redis.call('HGET', SETTINGS, 'limits')).running < math.huge
end

-- Returns what RUNNING has for a session, and what it should have: how many jobs the session runs, if the queue has such a limit. Each is nil for
-- no field. sessions are the numbers of the keys, as session_keys returns them; limited is what is_limited says.
local function count_of(session, sessions, limited)
  local k = sessions[session]
  local runs = k and redis.call('HLEN', KEYS[k]) or 0
  return redis.call('HGET', RUNNING, session) or nil, limited and runs > 0 and digits(runs) or nil
end

-- Corrects what RUNNING has for a session. Returns whether it was wrong.
local function recount(session, sessions)
  local has, right = count_of(session, sessions, is_limited())
  if right then
    redis.call('HSET', RUNNING, session, right)
  else
    redis.call('HDEL', RUNNING, session)
  end
  return has ~= right
end

-- Fits what is known of the queue to its new limits, as limits_of returns them: how many jobs each session runs, and when the next one may start. steady is the time by
-- the clock of limits. sessions are the numbers of the keys, as session_keys returns them.
local function limit_queue(queue, sessions, steady)
  redis.call('DEL', RUNNING)
  local bound = queue.bound(redis.call('ZSCORE', RATES, ''), steady)
  if not queue.rated then
    redis.call('ZREM', RATES, '')
  elseif bound then
    redis.call('ZADD', RATES, bound, '')
  end
  for session, k in pairs(sessions) do
    local n = redis.call('HLEN', KEYS[k])
    if n > 0 and queue.running < math.huge then
      redis.call('HSET', RUNNING, session, n)
    end
  end
end

-- Makes those jobs due that hold their serial groups and were put off for the rates of these: see await_rate. The claim that meets one looks at the rate again. A job that
-- has been put off for something else since is left alone. Returns whether there were any.
local function put_on(keys, now)
  local fields, any = {}, false
  for i = 1, #keys do
    fields[i] = 'd' .. keys[i]
  end
  local texts = redis.call('HMGET', LIMITS, unpack(fields))
  for i = 1, #keys do
    local at, id = string.match(texts[i] or '', '^(%d+) (.+)$')
    local record = id and redis.call('HGET', JOBS, id)
    local member = record and group_of(record) == keys[i] and class_of(record) .. id
    local due = member and tonumber(redis.call('ZSCORE', DUE, member) or nil)
    if due and due == tonumber(at) and due > now then
      redis.call('HSET', JOBS, id, redue(record, now))
      redis.call('ZADD', DUE, digits(now), member)
      any = true
    end
    if id then
      redis.call('HDEL', LIMITS, fields[i])
      redis.call('ZREM', PARKED, fields[i])
    end
  end
  return any
end

-- Returns what a claim knows of the limits of the queue itself, or nil if it has none and isn't held back. text is the setting, steady the time by the clock
-- of limits:
--   limits: what limits_of returns
--   at: when its next job would start
--   held_back: for how long (us) it is held back
--   steady: the time
--   spare: how many more jobs may start
--   pause: how long (us) it is until the rate allows one, or the hold ends
local function queue_limits(text, steady)
  local at, held_until = unpack(redis.call('ZMSCORE', RATES, '', 'h'))
  local held_back = (tonumber(held_until or nil) or 0) - steady
  if not text and held_back <= 0 then
    return nil
  end
  return {limits = limits_of(text), at = at, held_back = held_back, steady = steady, spare = math.huge, pause = 0}
end

-- Returns how many of the wanted jobs the limits of the queue leave.
local function queue_room(queue, session, want)
  local limits, others, mine = queue.limits, 0, redis.call('HLEN', INFLIGHT)
  if limits.running < math.huge then
    local counts = redis.call('HGETALL', RUNNING)
    for i = 1, #counts, 2 do
      if counts[i] ~= session then
        others = others + (tonumber(counts[i + 1]) or 0)
      end
    end
  end
  local bound = limits.bound(queue.at, queue.steady)
  if bound then
    queue.at = bound
    redis.call('ZADD', RATES, bound, '')
  end
  if queue.held_back > 0 then
    queue.spare, queue.pause = 0, queue.held_back
  else
    queue.spare, queue.pause = limits.allowed(queue.at, queue.steady)
  end
  queue.spare = math.max(math.min(queue.spare, limits.running - others - mine), 0)
  return math.min(want, queue.spare)
end

-- Notes that a claim has started n jobs, and how many the session runs.
local function queue_count(queue, session, n)
  local limits = queue.limits
  queue.spare = queue.spare - n
  if limits.rated and n > 0 then
    queue.at = limits.started(queue.at, queue.steady, n)
    redis.call('ZADD', RATES, queue.at, '')
    if queue.spare <= 0 then
      queue.pause = select(2, limits.allowed(queue.at, queue.steady))
    end
  end
  if limits.running < math.huge then
    local mine = redis.call('HLEN', INFLIGHT)
    if mine > 0 then
      redis.call('HSET', RUNNING, session, mine)
    else
      redis.call('HDEL', RUNNING, session)
    end
  end
end
