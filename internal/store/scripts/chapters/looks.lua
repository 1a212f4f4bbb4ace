-- What is there of a job, for doctors and listings.

-- Returns what there is of a job, and what it has cost to find out. The first is a list of texts: a digest of those behind it, the ID,
-- the first 224 bytes of the record, its size ('' if there is none), the note and the mark ('' if there is none, else behind '+').
-- Then four for each place: 'ready', class, how many times it is in the list, '', if search says that the lists are searched; 'lined', class, '', '', of a
-- job in its group's line; 'due', class, score, ''; 'running', session, what the session holds, '1' if the session is registered; 'awaiting', what it waits
-- for, '', '', of a job that waits for a flow; or 'dead', 'cancelled' or 'completed', score, '', ''. At last 'unique', the scope, the unique key, and what
-- UNIQUE has for it, if the record has a key that isn't for a window. 'links', its links, '', '', if it has some. 'expires', when it expires by EXPIRES and
-- when by its record, '', if either says so; '' stands for never.
local function facts_of(id, first_session, inflight, search)
  local record = redis.call('HGET', JOBS, id)
  local note, mark = redis.call('HGET', NOTES, id), redis.call('HGET', CANCELS, id)
  local facts = {id, string.sub(record or '', 1, 224), record and digits(#record) or '', note and '+' .. note or '', mark and '+' .. mark or ''}
  local cost = math.floor(#(record or '') / 64)
  local function put(...)
    for i = 1, 4 do
      facts[#facts + 1] = (select(i, ...))
    end
  end
  for _, class in ipairs({'0', '1', '2', 's'}) do
    if search then
      local list = ready_lists[class]
      local times = #redis.call('LPOS', list, id, 'COUNT', 0)
      cost = cost + redis.call('LLEN', list)
      if times > 0 then
        put('ready', class, digits(times), '')
      end
    end
  end
  local group = record and group_of(record)
  if group and redis.call('ZSCORE', LINED, line_of(record, group, id)) then
    put('lined', string.sub(record, 2, 2), '', '')
  end
  for _, class in ipairs({'0', '1', '2', 's', 'a', 'b', 'c'}) do
    local us = redis.call('ZSCORE', DUE, class .. id)
    if us then
      put('due', class, us, '')
    end
  end
  local waits = record and awaits(id, record)
  if waits then
    put('awaiting', string.sub(waits, 1, -#id - 1), '', '')
  end
  for k = first_session, #KEYS do
    local delivery = redis.call('HGET', KEYS[k], id)
    if delivery then
      local session = string.sub(KEYS[k], #inflight + 1)
      put('running', session, delivery, redis.call('ZSCORE', SESSIONS, session) and '1' or '0')
    end
  end
  local terminal = terminal_states()
  for _, name in ipairs({'dead', 'cancelled', 'completed'}) do
    local state = terminal[name]
    local us = redis.call('ZSCORE', state.set, id)
    if us then
      put(name, us, '', '')
    end
  end
  local scope, key = unique_of(record or '')
  if scope == 's' or scope == 'e' then
    put('unique', scope, key, redis.call('HGET', UNIQUE, key) or '')
  end
  local links = record and links_of(record)
  if links then
    put('links', links, '', '')
  end
  local said, at = redis.call('ZSCORE', EXPIRES, id), record and expiry_of(record)
  if said or at then
    put('expires', said or '', at and digits(at) or '', '')
  end
  table.insert(facts, 1, redis.sha1hex(table.concat(facts, '\0')))
  return facts, cost
end

-- Reports whether a text stands before another in the order of their bytes, as Redis sorts members of the same score. Lua's own order goes
-- by the server's language.
local function sorts_before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

-- Reports whether an address of IDLE is that of no session which is registered. channels stands before a session in the name of its channel.
local function is_strange(address, channels)
  return string.sub(address, 2, #channels + 1) ~= channels or not redis.call('ZSCORE', SESSIONS, string.sub(address, #channels + 2))
end

-- Returns those of the first count addresses of IDLE that are strange, and how many addresses there are, in digits.
local function strange_addresses(channels, count)
  local length, strange = digits(redis.call('ZCARD', IDLE)), {}
  for _, address in ipairs(redis.call('ZRANGE', IDLE, 0, tonumber(count) - 1)) do
    if is_strange(address, channels) then
      strange[#strange + 1] = address
    end
  end
  return strange, length
end

-- Looks at a page of UNIQUE. Returns the cursor to go on with, the keys that are no longer so, and what UNIQUE has for each of them.
local function wrong_keys(cursor, count, first_session)
  local found = redis.call('HSCAN', UNIQUE, cursor, 'COUNT', count)
  local wrong, values = {}, {}
  for i = 1, #found[2], 2 do
    if key_fault(found[2][i], found[2][i + 1], first_session) then
      wrong[#wrong + 1] = found[2][i]
      values[#values + 1] = found[2][i + 1]
    end
  end
  return found[1], wrong, values
end

-- Returns the cursor to go on with, and the IDs in a page of what the session with the key k holds.
local function page_of_session(k, cursor, count)
  local page, ids = redis.call('HSCAN', KEYS[k], cursor, 'COUNT', count), {}
  for i = 1, #page[2], 2 do
    ids[#ids + 1] = page[2][i]
  end
  return page[1], ids
end

-- Returns the cursor to go on with, and the IDs in a page of a key: that of JOBS, DUE, DEAD and so on which source names. Then of JOBS each ID and its
-- record, of DUE the members that have no class or no ID, else nothing.
local function page_of(source, cursor, count)
  local page
  if source == 'jobs' or source == 'notes' or source == 'cancels' then
    local list = ({jobs = JOBS, notes = NOTES, cancels = CANCELS})[source]
    page = redis.call('HSCAN', list, cursor, 'COUNT', count)
  else
    local list = ({due = DUE, dead = DEAD, cancelled = CANCELLED, completed = COMPLETED, expires = EXPIRES})[source]
    page = redis.call('ZSCAN', list, cursor, 'COUNT', count)
  end
  local ids, odd = {}, {}
  for i = 1, #page[2], 2 do
    local id = page[2][i]
    if source == 'notes' and string.find(id, ' ', 1, true) then
      -- The note of a death is about no job that is there.
    elseif source ~= 'due' then
      ids[#ids + 1] = id
    elseif string.find(id, '^[012sabc].') then
      ids[#ids + 1] = string.sub(id, 2) -- without the class
    else
      odd[#odd + 1] = id
    end
  end
  return page[1], ids, source == 'jobs' and page[2] or odd
end

-- Returns the earlier of two times (us) since when a job could run: since, which is -1 if there is none, and us, which may be nil, or later than now.
local function earlier(since, us, now)
  if us and us <= now and (since < 0 or us < since) then
    return us
  end
  return since
end

-- Returns lines of groups that may go on, 1000 at most, and how many there are, by a guess if there are more than 1000. Such a line has a turn, or is parked until
-- a time that has passed. All others wait for their group: for the jobs that hold it, its rate, the end of a hold or of a pause. steady is the time by
-- the clock of limits.
local function lines_that_may_go_on(steady)
  local lines, known = {}, {}
  for _, got in ipairs({redis.call('ZRANGE', PARKED, '-inf', digits(steady), 'BYSCORE', 'LIMIT', 0, 500), redis.call('ZRANGE', TURNS, 0, 499)}) do
    for _, line in ipairs(got) do
      if not known[line] then -- one that became empty may be parked on, beside its turn
        lines[#lines + 1] = line
        known[line] = true
      end
    end
  end
  return lines, math.max(redis.call('ZCOUNT', PARKED, '-inf', digits(steady)) + redis.call('ZCARD', TURNS), #lines)
end

-- Reports for each of some lines, 500 at most, whether its group is paused or held back. Such a line may have its turn until a claim takes it.
local function stopped_lines(lines, steady)
  local fields, members, stopped = {}, {}, {}
  for i = 1, #lines do
    local key = string.sub(lines[i], 2)
    fields[i], members[i] = 'p' .. key, 'h' .. key
  end
  local paused = redis.call('HLEN', LIMITS) > 0 and redis.call('HMGET', LIMITS, unpack(fields)) or {}
  local held_until = redis.call('ZCARD', RATES) > 0 and redis.call('ZMSCORE', RATES, unpack(members)) or {}
  for i = 1, #lines do
    stopped[i] = paused[i] or (tonumber(held_until[i] or nil) or 0) > steady
  end
  return stopped
end

-- Returns how many of the jobs in lines wait for their groups, by a guess if more than 1000 lines may go on. lined is how many jobs the lines have. Then since,
-- or when the longest waiting one of the other jobs became due, if that is earlier.
local function blocked_in_lines(lined, since, now)
  local steady, free = limits_clock(now), 0
  local lines, may_go_on = lines_that_may_go_on(steady)
  for from = 1, #lines, 500 do
    local page = {unpack(lines, from, math.min(from + 499, #lines))}
    local stopped = stopped_lines(page, steady)
    for i, line in ipairs(page) do
      if not stopped[i] then
        free = free + redis.call('ZLEXCOUNT', LINED, '[' .. line .. '\1', '(' .. line .. '\2')
        local first = redis.call('ZRANGE', LINED, '[' .. line .. '\1', '(' .. line .. '\2', 'BYLEX', 'LIMIT', 0, 1)[1]
        since = earlier(since, first and tonumber(string.sub(first, #line + 2, #line + 17)) or nil, now) -- its place
      end
    end
  end
  if may_go_on > #lines then
    free = math.ceil(free / #lines * may_go_on)
  end
  return math.max(lined - free, 0), since
end
