-- include: digits, limits_clock

-- A step of depth.lua: looks at the lines of groups that may go on. These have a turn, or are parked until a time that has passed. All others wait for their
-- group: for the jobs that hold it, its rate, the end of a hold or of a pause. A line whose group was paused or held back may have its turn until a
-- claim takes it.
local steady = limits_clock(now)
local page, lines, at = 500, {}, {} -- at: where a line stands among lines
for _, got in ipairs({redis.call('ZRANGE', PARKED, '-inf', digits(steady), 'BYSCORE', 'LIMIT', 0, page), redis.call('ZRANGE', TURNS, 0, page - 1)}) do
  for _, line in ipairs(got) do
    if not at[line] then -- one that became empty may be parked on, beside its turn
      lines[#lines + 1] = line
      at[line] = #lines
    end
  end
end
local may_go_on = math.max(redis.call('ZCOUNT', PARKED, '-inf', digits(steady)) + redis.call('ZCARD', TURNS), #lines)
local named, timed, free = redis.call('HLEN', LIMITS) > 0, redis.call('ZCARD', RATES) > 0, 0
for from = 1, #lines, page do
  local fields, members, n = {}, {}, math.min(page, #lines - from + 1)
  for i = 1, n do
    local key = string.sub(lines[from + i - 1], 2)
    fields[i], members[i] = 'p' .. key, 'h' .. key
  end
  local paused = named and redis.call('HMGET', LIMITS, unpack(fields)) or {}
  local held = timed and redis.call('ZMSCORE', RATES, unpack(members)) or {}
  for i = 1, n do
    if not paused[i] and (tonumber(held[i] or nil) or 0) <= steady then
      local line = lines[from + i - 1]
      free = free + redis.call('ZLEXCOUNT', LINED, '[' .. line .. '\1', '(' .. line .. '\2')
      local first = redis.call('ZRANGE', LINED, '[' .. line .. '\1', '(' .. line .. '\2', 'BYLEX', 'LIMIT', 0, 1)[1]
      waiting(first and tonumber(string.sub(first, #line + 2, #line + 17)) or nil) -- its place
    end
  end
end
if may_go_on > #lines then
  free = math.ceil(free / #lines * may_go_on)
end
blocked = math.max(lined - free, 0)
