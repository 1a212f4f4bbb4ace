-- A claim of a queue that has suspects, groups, limits, unique keys or jobs that expire.

-- Takes suspects, as many as the session may have. Returns how long (us) it is until a suspect that runs keeps others out no more, 0 if none does.
local function draw_suspects(draw, hold, now)
  local flags, crowded, reopens, room = suspects_among(math.min(draw.want, 16), hold, now, draw.room)
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

-- Puts off a job that holds its serial group and comes to run again before the group's rate allows it, in pause (us). It holds the group on, since the
-- others are to wait for it. LIMITS has the time at which it is due, and its ID. PARKED has the group until the same time, by the clock of limits.
local function await_rate(id, record, key, pause, now, steady)
  local at = digits(now + pause)
  redis.call('HSET', JOBS, id, redue(record, now + pause))
  redis.call('ZADD', DUE, at, class_of(record) .. id)
  redis.call('HSET', LIMITS, 'd' .. key, at .. ' ' .. id)
  redis.call('ZADD', PARKED, digits(steady + pause), 'd' .. key)
end

-- Puts off a job that holds its paused serial group and comes to run again. It holds the group on, since the others are to wait for it. It is due again
-- after 10 minutes, which LIMITS has with its ID: resuming the group makes it due at once, if nobody has given it another time since. paused is what LIMITS has for the pause.
local function await_resume(id, record, key, paused, now)
  local at = now + 600000000
  redis.call('HSET', JOBS, id, redue(record, at))
  redis.call('ZADD', DUE, digits(at), class_of(record) .. id)
  redis.call('HSET', LIMITS, 'p' .. key, string.match(paused, '^%d*') .. ' ' .. digits(at) .. ' ' .. id)
end

-- Puts a job that held its group back into its line, to the place that it had. It holds the group no more. If pause (us) is above 0, the line gets its
-- turn only then, unless it has one.
local function back_to_line(g, id, record, key, pause, steady)
  local class, member = string.sub(record, 2, 2), line_of(record, key, id)
  g.leave({key})
  if pause > 0 and g.state(key, class) == '.' then
    g.set(key, class, 'w')
    redis.call('ZADD', LINED, '0', member)
    redis.call('ZADD', PARKED, digits(steady + pause), class .. key)
  else
    g.join({member})
  end
end

-- Counts jobs that hold their groups already, as they run again, for the limits of those groups, too. If more jobs hold a group than
-- may, since its limit was lowered, one that the others leave no room for goes back to its line. So does one that the group's rate doesn't allow yet. One
-- of a serial group holds it on, and is put off until the rate allows it. A serial group has one holder, so its limit says nothing here.
-- None runs while its group is paused: as many may hold it then as for a limit of 0, and one of a serial group is put off.
-- records and busy are what JOBS and INFLIGHT have for the jobs that were drawn; a record of one that doesn't start becomes false, and seen gets its ID.
local function pay_rates(draw, g, records, busy, seen, now, steady)
  local popped = draw.popped
  local owners, keys, holders = {}, {}, {} -- holders: by key, how many of the jobs that were drawn hold the group
  for i = 1, #popped do
    if records[i] and not draw.from[i] and not busy[i] then
      local key = group_of(records[i])
      owners[i] = key
      if key then
        keys[#keys + 1] = key
        holders[key] = (holders[key] or 0) + 1
      end
    end
  end
  if #keys > 0 then
    g.load(keys)
  end
  for i = 1, #popped do
    local id = popped[i]
    local key = not seen[id] and owners[i] or nil
    local s = key and g.of(key)
    local serial = key and string.byte(key) == 115
    if key and s.paused and serial then
      seen[id] = true
      await_resume(id, records[i], key, s.paused, now)
      records[i] = false
    elseif key then
      local pause = 0
      -- Of the holders those stay that come first, as many as the others leave room for.
      if s.holders > s.most and not serial then
        s.keeps = (s.keeps or math.max(s.most - (s.holders - holders[key]), 0)) - 1
        pause = s.keeps < 0 and -1 or 0
      end
      if pause == 0 then
        pause = g.again(key, steady)
      end
      if pause ~= 0 then
        seen[id] = true -- an ID that stands twice in a list is dealt with once
        if serial then
          await_rate(id, records[i], key, pause, now, steady)
        else
          back_to_line(g, id, records[i], key, pause, steady)
        end
        records[i] = false
      end
    end
  end
end

-- Looks at a job that was drawn and that may expire. If its time is over, it ends, and nil is returned. Else it has started, and never expires: returns its
-- record.
local function begin_expiring(id, record, ends)
  local at, part = expiry_of(record)
  if not at then
    return record
  end
  redis.call('ZREM', EXPIRES, id)
  if at <= ends.now then
    expire(ends, id, record)
    return nil
  end
  record = string.sub(record, 1, part - 1) .. string.rep('\0', 8) .. string.sub(record, part + 8)
  redis.call('HSET', JOBS, id, record)
  return record
end

-- Returns what the unique keys of a claim's new deliveries need:
--   keys, ids: keys to free, and whose they are
--   begun: for HSET, IDs and records that say from now on that the job had its key
--   throttled: keys, IDs and lengths (us) of windows that begin
local function new_keys()
  return {keys = {}, ids = {}, begun = {}, throttled = {}}
end

-- Looks at the unique key of a job that is granted. One until the start is freed, and the record says from then on that the job
-- had it. Or its window begins. Returns the record, and the key if it is one until the end: it is noted with the delivery.
local function begin_unique(id, record, unique)
  local scope, key, window, part = unique_of(record)
  if scope == 's' then
    table.insert(unique.keys, key)
    table.insert(unique.ids, id)
    record = string.sub(record, 1, part - 1) .. 'S' .. string.sub(record, part + 1)
    table.insert(unique.begun, id)
    table.insert(unique.begun, record)
  elseif scope == 't' then
    table.insert(unique.throttled, {key, id, window})
  end
  return record, scope == 'e' and key or nil
end

-- Begins the windows of throttled jobs, now that a worker gets these for the first time. A job that has no key has begun before.
local function begin_windows(throttled, now)
  local values, windows = {}, {}
  for _, one in ipairs(throttled) do
    local key, id, window = unpack(one)
    if redis.call('HGET', UNIQUE, key) == 't ' .. id then
      local till = digits(now + window)
      values[#values + 1], values[#values + 2] = key, till .. ' ' .. id
      windows[#windows + 1], windows[#windows + 2] = till, key
    end
  end
  if #values > 0 then
    redis.call('HSET', UNIQUE, unpack(values))
    redis.call('ZADD', WINDOWS, unpack(windows))
    drop_windows(now, 10 + #windows)
  end
end

-- Writes what begins with a claim's new deliveries.
local function write_keys(unique, now)
  if #unique.keys > 0 then
    redis.call('HSET', JOBS, unpack(unique.begun))
    free_keys(unique.keys, unique.ids)
  end
  if #unique.throttled > 0 then
    begin_windows(unique.throttled, now)
  end
end

-- Looks at a job of a queue that isn't plain, which was drawn from the line of the group from, or from a list if that is nil. record is nil if there is
-- none, or if the job is in flight. Returns the record if the job starts, and what stands behind the flags of its delivery: its group, and its
-- unique key until the end. A suspect that was drawn from a line isn't granted: it holds its group, and waits among the suspects; draw.crowded says so.
local function begin_delivery(draw, ready, ends, g, unique, id, from, record, flags)
  local mark = record and string.byte(record, 4) or 0 -- the flags of the record: 1 for a group, 4 for a unique key, 8 for a job that expires, 64 for links
  if mark % 16 >= 8 then
    record = begin_expiring(id, record, ends)
  end
  if from and not record then
    g.leave({from}) -- it has been drawn, so it holds the group
  elseif from and (string.byte(record, 3) or 0) >= suspect_at and class_of(record) == 's' then -- the first test is quicker, and is true for few
    enter(ready, 's', {id}, false)
    draw.crowded = true -- so the call is made again
    return nil
  end
  local links = record and mark % 128 >= 64 and links_of(record)
  if links and ends_with_flow(ends, id, links) then
    free_key_of(id, record)
    if mark % 2 == 1 then
      g.leave({from or group_of(record)})
    end
    record = nil
  end
  if not record then
    return nil
  end
  local group, key = from or mark % 2 == 1 and group_of(record) or nil, nil
  if mark % 8 >= 4 then
    record, key = begin_unique(id, record, unique)
  end
  if key or links then
    return record, (flags and '' or ' ') .. ' ' .. (group or '') .. ' ' .. (key or '') .. (links and '\2' .. links or '')
  end
  return record, group and (flags and ' ' or '  ') .. group or nil
end

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

-- Returns the IDs and records of the jobs that a claim granted these tokens to: for a call that is made again, since its reply was lost. An ID is '' where
-- a job is gone.
local function granted_before(first, last)
  local ids, bodies, at = {}, {}, {}
  if first > last then
    return ids, bodies
  end
  local entries = redis.call('HGETALL', INFLIGHT)
  for i = 1, #entries, 2 do
    local token = tonumber(string.match(entries[i + 1], '^%d+') or 'none')
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
