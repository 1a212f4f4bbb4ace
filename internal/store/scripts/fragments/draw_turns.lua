-- A step of claim.lua: draws jobs from the lines of one class, up to most of them. Each turn is for one job, or for its share if there are fewer
-- turns than jobs wanted. A line that has more jobs goes behind all others. One that may not go on is blocked, or parked until its rate allows a job.
local looked, n_popped = 0, #popped
local counts = {} -- by number: one more, in digits
while n_popped < most and not full do
  local base = tonumber(class) * 1125899906842624
  local got = redis.call('ZRANGE', TURNS, digits(base), '(' .. digits(base + 1125899906842624), 'BYSCORE', 'LIMIT', 0, math.min(most - n_popped, 500))
  looked = looked + #got
  if #got == 0 then
    break
  elseif looked > want + 1000 then
    full = true -- the call has been long enough
    break
  end
  local keys, share = {}, math.max(math.floor((most - n_popped) / #got), 1)
  for i = 1, #got do
    keys[i] = string.sub(got[i], 2)
  end
  g.load(keys)
  local rows, turns, used, parked, n_rows = {}, {}, {}, {}, 0
  for i = 1, #got do
    local key, name = keys[i], got[i]
    local s = g.of(key)
    local allowed, pause = math.huge, 0
    if g.timed then
      allowed, pause = g.allowed(s, steady)
    end
    local n = math.min(share, s.most - s.held, allowed, most - n_popped)
    counts[n] = counts[n] or digits(n + 1) -- one more says whether others wait
    local line = n > 0 and redis.call('ZRANGE', LINED, '[' .. name .. '\1', '(' .. name .. '\2', 'BYLEX', 'LIMIT', '0', counts[n]) or {}
    local taken = 0
    for k = 1, math.min(n, #line) do
      local id = string.sub(line[k], #name + 18)
      if measure then
        local size = redis.call('HSTRLEN', JOBS, id)
        if size > room and n_popped > 0 then
          full = true
          break
        end
        room = room - size
      end
      taken = taken + 1
      n_rows, n_popped = n_rows + 1, n_popped + 1
      rows[n_rows] = line[k]
      popped[n_popped], from[n_popped] = id, key
    end
    if full and taken == 0 then
      break -- it keeps its turn
    end
    g.hold(key, taken, steady)
    used[i] = name
    if n > 0 and #line <= taken then
      g.set(key, class, '.')
    elseif s.held >= s.most then
      g.set(key, class, 'b')
    else
      allowed, pause = g.allowed(s, steady)
      if allowed > 0 then
        g.turn(key, class, turns)
      else
        g.set(key, class, 'w')
        parked[#parked + 1] = digits(steady + pause)
        parked[#parked + 1] = name
      end
    end
    if full then
      break
    end
  end
  if n_rows > 0 then
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
