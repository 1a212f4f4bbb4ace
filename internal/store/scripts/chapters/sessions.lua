-- What sessions hold, and the suspects that they may take.

-- Returns the numbers of the sessions' keys, which begin with first_session and have inflight before the session, by the names of the sessions, and whether
-- all sessions that are registered are in KEYS.
local function session_keys(first_session, inflight)
  local keys, all = {}, true
  for k = first_session, #KEYS do
    keys[string.sub(KEYS[k], #inflight + 1)] = k
  end
  for _, session in ipairs(redis.call('ZRANGE', SESSIONS, 0, -1)) do
    all = all and keys[session]
  end
  return keys, all
end

-- Returns the fields of what a session holds for a delivery, '' where one isn't there: the token; the flags, of a suspect an 's' and the number of its
-- crashes, then a 'c' if its job was cancelled meanwhile; the key of the group that it holds; the unique key that its end frees; the links of its job. Of what
-- holds none, or can't be read, the token is nil. FieldsOf reads the same in Go. begin_delivery writes what stands behind the flags.
local function delivery_fields(value)
  local token, flags, group, key, links = string.match(value or '', '^(%d+) ([^ ]*) ?([^ ]*) ?([^\2]*)\2?(.*)$')
  return token or value and string.match(value, '^%d+$') or nil, flags or '', group or '', key or '', links or ''
end

-- Reports whether what a session holds for a delivery has this token.
local function owns(value, token)
  return value == token or delivery_fields(value) == token
end

-- Reports whether what a session holds for a delivery says that its job was cancelled while it runs: with the flag 'c'. CANCELS has the mark
-- then.
local function is_marked(value)
  local _, flags = delivery_fields(value)
  return string.find(flags, 'c', 1, true) ~= nil
end

-- Returns the key of the group that a delivery holds, from what the session's hash has for it, or nil.
local function delivery_group(value)
  local _, _, group = delivery_fields(value)
  return group ~= '' and group or nil
end

-- Returns which suspects the session may still take, given those that it has: how many with two crashes, whether one with more crashes,
-- and whether one that runs beside no other. Then the token of the first that keeps others out for now, or nil.
--
-- When a session crashes, each of its jobs may get a crash. So suspects with two crashes begin at most sixteen at a time, and suspects
-- with three alone. A suspect keeps others out only for a limited time (apart). From alone_at crashes on no other suspect ever runs
-- beside it: by the usual limit it would be dead at the next one. So no suspect dies because of another one.
local function suspects_welcome(apart, now)
  local light, heavy, last, oldest = 16, true, true, nil
  for _, value in ipairs(redis.call('HVALS', INFLIGHT)) do
    local token, flags = delivery_fields(value)
    local crashes = string.match(flags, '^s(%d*)')
    if crashes then
      token, crashes = tonumber(token), tonumber(crashes) or alone_at
      last = false
      if crashes >= alone_at then
        return 0, false, false, nil
      elseif now - token < apart then
        heavy = false
        light = crashes == suspect_at and light - 1 or 0
        oldest = math.min(oldest or token, token)
      end
    end
  end
  return light, heavy, last, oldest
end

-- Looks at the first n suspects, whose records have room bytes in the reply. Returns four values: the flags of those that the session may take (a flag stands behind the job's token);
-- whether suspects are left out because the reply has no room; how long (us) a suspect still keeps others out, 0 if none does;
-- how many bytes the reply has room for behind these.
local function suspects_among(n, apart, now, room)
  local light, heavy, last, oldest = suspects_welcome(apart, now)
  local flags, reopens = {}, oldest and math.max(oldest + apart - now, 1) or 0
  if light <= 0 and not heavy then
    return flags, false, reopens, room
  end
  for i, id in ipairs(redis.call('LRANGE', SUSPECT, 0, n - 1)) do
    local size = redis.call('HSTRLEN', JOBS, id)
    if i > 1 and size > room then
      return flags, true, 0, room
    end
    room = room - size
    local record = redis.call('HGET', JOBS, id)
    local crashes = record and has_header(record) and math.max(string.byte(record, 3), suspect_at) or suspect_at
    if not record then
      flags[i] = '' -- it is taken from the list, and that is all
    elseif crashes == suspect_at and light > 0 or crashes > suspect_at and crashes < alone_at and heavy or crashes >= alone_at and last then
      flags[i] = ' s' .. crashes
      light, heavy, last = crashes == suspect_at and light - 1 or 0, false, false
    else
      break
    end
  end
  if flags[1] and reopens == 0 then
    reopens = apart
  end
  return flags, false, reopens, room
end
