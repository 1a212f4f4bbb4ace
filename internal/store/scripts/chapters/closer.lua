-- What a claim looks at, and takes, besides ready jobs: of a queue that isn't plain (see needs_closer_look) its groups, limits, unique keys, flows and jobs that expire; and suspects.

-- Reads what a claim needs of a queue that isn't plain. of_queue and of_groups are the limits of the settings. Of jobs that should have started by now it
-- reads at most most_late. Returns:
--   groups: what lines_of_groups returns
--   queue: what queue_limits returns
--   steady: the time by the clock of limits, if there are any, else now
--   seen: what STATS is to have of it, or nil
--   over: the IDs of jobs that should have started by now
local function look_closer(of_queue, of_groups, now, most_late)
  local steady, seen = now, nil
  local limited = redis.call('HLEN', LIMITS) + redis.call('ZCARD', RATES) + redis.call('ZCARD', PARKED) > 0 or of_groups -- all are read
  if limited or of_queue then
    steady, seen = limits_clock(now)
  end
  local groups = lines_of_groups(limited and limits_of_groups(of_groups, steady) or nil)
  local queue = queue_limits(of_queue, steady)
  redis.call('HLEN', RUNNING)
  redis.call('ZCARD', LINED)
  redis.call('ZCARD', TURNS)
  redis.call('HLEN', GROUPS)
  redis.call('HLEN', UNIQUE)
  redis.call('ZCARD', WINDOWS)
  if redis.call('HLEN', FLOWS) > 0 then
    redis.call('ZCARD', AWAITING)
    redis.call('HLEN', FLOWNOTES)
    redis.call('ZCARD', FLOWTIMES)
    redis.call('HLEN', ADDED)
  end
  local over = redis.call('ZRANGEBYSCORE', EXPIRES, '-inf', digits(now), 'LIMIT', 0, most_late)
  return {groups = groups, queue = queue, steady = steady, seen = seen, over = over}
end

-- Takes suspects, as many as the session may have. Returns how long (us) it is until a suspect that runs keeps others out no more, 0 if none does.
local function draw_suspects(draw, apart, now)
  local flags, crowded, reopens, room = suspects_among(math.min(draw.want, 16), apart, now, draw.room)
  draw.flags, draw.crowded, draw.room = flags, crowded, room
  if #flags > 0 then
    pop(draw, SUSPECT, #flags)
  end
  return reopens
end

-- Takes the first n jobs of a line, or fewer if their records have no room. line is what LINED has, and name is the line's name. rows gets what is to be
-- removed from LINED. Returns how many were taken.
local function take_of_line(draw, line, n, name, rows)
  local popped, from, key = draw.popped, draw.from, string.sub(name, 2)
  local taken, n_rows, n_popped = 0, #rows, #popped
  for k = 1, math.min(n, #line) do
    local id = string.sub(line[k], #name + 18)
    if draw.measure then
      local size = redis.call('HSTRLEN', JOBS, id)
      if size > draw.room and n_popped > 0 then
        draw.cut_short = true
        break
      end
      draw.room = draw.room - size
    end
    taken, n_rows, n_popped = taken + 1, n_rows + 1, n_popped + 1
    rows[n_rows], popped[n_popped], from[n_popped] = line[k], id, key
  end
  return taken
end

-- Takes jobs from the lines of one class, until most have been drawn. Each turn is for one job, or for its share if there are fewer
-- turns than jobs wanted. A line that has more jobs goes behind all others. One that may not go on is blocked, or parked until its rate allows a job.
local function draw_turns(draw, g, class, most, steady)
  local looked, base = 0, tonumber(class) * turn_span
  local counts = {} -- by number: one more, in digits
  while #draw.popped < most and not draw.cut_short do
    local got = redis.call('ZRANGE', TURNS, digits(base), '(' .. digits(base + turn_span), 'BYSCORE', 'LIMIT', 0, math.min(most - #draw.popped, 500))
    looked = looked + #got
    if #got == 0 then
      break
    elseif looked > draw.want + 1000 then
      draw.cut_short = true -- the call has been long enough
      break
    end
    local keys, share = {}, math.max(math.floor((most - #draw.popped) / #got), 1)
    for i = 1, #got do
      keys[i] = string.sub(got[i], 2)
    end
    g.load(keys)
    local rows, turns, used, parked = {}, {}, {}, {}
    for i = 1, #got do
      local key, name = keys[i], got[i]
      local s = g.of(key)
      local allowed, pause = math.huge, 0
      if g.timed then
        allowed, pause = g.allowed(s, steady)
      end
      local n = math.min(share, s.most - s.holders, allowed, most - #draw.popped)
      counts[n] = counts[n] or digits(n + 1) -- one more says whether others wait
      local line = n > 0 and redis.call('ZRANGE', LINED, '[' .. name .. '\1', '(' .. name .. '\2', 'BYLEX', 'LIMIT', '0', counts[n]) or {}
      local taken = take_of_line(draw, line, n, name, rows)
      if draw.cut_short and taken == 0 then
        break -- it keeps its turn
      end
      g.hold(key, taken, steady)
      used[i] = name
      if n > 0 and #line <= taken then
        g.set(key, class, '.')
      elseif s.holders >= s.most then
        g.set(key, class, 'b')
      else
        allowed, pause = g.allowed(s, steady)
        if allowed > 0 then
          g.turn(key, class, turns)
        else
          g.set(key, class, 'w')
          parked[#parked + 1], parked[#parked + 2] = digits(steady + pause), name
        end
      end
      if draw.cut_short then
        break
      end
    end
    if #rows > 0 then
      redis.call('ZREM', LINED, unpack(rows))
    end
    if #used > 0 then
      redis.call('ZREM', TURNS, unpack(used))
    end
    if #turns > 0 then
      redis.call('ZADD', TURNS, unpack(turns))
    end
    if #parked > 0 then
      redis.call('ZADD', PARKED, unpack(parked))
    end
  end
end

-- Returns how many of the first n IDs of a list have records that fit into the reply.
local function fitting(draw, list, n)
  for i, id in ipairs(redis.call('LRANGE', list, 0, n - 1)) do
    local size = redis.call('HSTRLEN', JOBS, id)
    if size > draw.room and #draw.popped + i > 1 then
      draw.cut_short = true
      return i - 1
    end
    draw.room = draw.room - size
  end
  return n
end

-- Gives turns to lines whose rates allow a job again, and forgets times that have passed. steady is the time by the clock of limits.
local function unpark(g, now, steady)
  local parked = redis.call('ZRANGEBYSCORE', PARKED, '-inf', digits(steady), 'LIMIT', 0, 500)
  if #parked > 0 then
    local keys, turns, deferred = {}, {}, {} -- deferred: the keys of serial groups whose jobs were put off
    for i = 1, #parked do
      keys[i] = string.sub(parked[i], 2)
    end
    g.load(keys)
    for i = 1, #parked do
      local class = string.sub(parked[i], 1, 1)
      if class == 'd' then
        deferred[#deferred + 1] = keys[i]
      elseif g.state(keys[i], class) == 'w' then -- else the line has become empty since
        g.turn(keys[i], class, turns)
      end
    end
    redis.call('ZREM', PARKED, unpack(parked))
    if #turns > 0 then
      redis.call('ZADD', TURNS, unpack(turns))
    end
    if #deferred > 0 then
      put_on(deferred, now)
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
end

-- Returns the IDs and records of the jobs that a claim granted these tokens to: for a call that is made again, since its reply was lost. An ID is '' where
-- a job is gone.
local function granted_before(first, last)
  local ids, bodies, at = {}, {}, {}
  if first > last then
    return ids, bodies
  end
  local entries = redis.call('HGETALL', INFLIGHT)
  for i = 1, #entries, 2 do
    local token = tonumber((delivery_fields(entries[i + 1])))
    if token and token >= first and token <= last then
      at[token] = entries[i]
    end
  end
  for token = first, last do
    ids[#ids + 1] = at[token] or ''
    bodies[#bodies + 1] = at[token] and redis.call('HGET', JOBS, at[token]) or false
  end
  return ids, bodies
end
