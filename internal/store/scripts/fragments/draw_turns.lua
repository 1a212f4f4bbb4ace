-- A step of claim.lua: draws jobs from the lines of one class, up to most of them. Each turn is for one job, or for its share if there are fewer
-- turns than jobs wanted. A line that has more jobs goes behind all others. One that may not go on is blocked, or parked until its rate allows a job.
local looked = 0
while #popped < most and not full do
  local base = tonumber(class) * 1125899906842624
  local got = redis.call('ZRANGE', TURNS, digits(base), '(' .. digits(base + 1125899906842624), 'BYSCORE', 'LIMIT', 0, math.min(most - #popped, 500))
  looked = looked + #got
  if #got == 0 then
    break
  elseif looked > want + 1000 then
    full = true -- the call has been long enough
    break
  end
  local keys, share = {}, math.max(math.floor((most - #popped) / #got), 1)
  for i = 1, #got do
    keys[i] = string.sub(got[i], 2)
  end
  g.load(keys)
  local rows, turns, used, parked = {}, {}, {}, {}
  for i = 1, #got do
    local key = keys[i]
    local allowed, pause = g.allowed(key, now)
    local n = math.min(share, g.room(key), allowed, most - #popped)
    local line = n > 0 and redis.call('ZRANGE', LINED, '[' .. got[i] .. '\1', '(' .. got[i] .. '\2', 'BYLEX', 'LIMIT', '0', digits(n + 1)) or {}
    local taken = 0
    for k = 1, math.min(n, #line) do
      local id = string.sub(line[k], #got[i] + 18)
      if measure then
        local size = redis.call('HSTRLEN', JOBS, id)
        if size > room and #popped > 0 then
          full = true
          break
        end
        room = room - size
      end
      taken = taken + 1
      rows[#rows + 1] = line[k]
      popped[#popped + 1] = id
      from[#popped] = key
    end
    if full and taken == 0 then
      break -- it keeps its turn
    end
    g.drew(key, taken, now)
    used[#used + 1] = got[i]
    if n > 0 and #line <= taken then
      g.set(key, class, '.')
    elseif g.room(key) <= 0 then
      g.set(key, class, 'b')
    else
      allowed, pause = g.allowed(key, now)
      if allowed > 0 then
        g.turn(key, class, turns)
      else
        g.set(key, class, 'w')
        parked[#parked + 1] = digits(now + pause)
        parked[#parked + 1] = got[i]
      end
    end
    if full then
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
