-- Whether a job that a claim has drawn from a queue that isn't plain starts, and what begins with it.

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
-- record. One with a deadline keeps that, for its worker.
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
  local begun = string.byte(record, part) == 128 and '\129' .. string.sub(record, part + 1, part + 7) or string.rep('\0', 8)
  record = string.sub(record, 1, part - 1) .. begun .. string.sub(record, part + 8)
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
