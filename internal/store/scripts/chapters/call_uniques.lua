-- The unique keys of a call that puts jobs in.

-- Reads what UNIQUE has for the unique keys of a call. Returns what the functions below are given:
--   owners: by key, what UNIQUE has for it, or will have
--   states: by ID of a job that has one of them, its state as outcomes have it, or 'g' of one that is gone; see find_holders
--   moving: by ID, whether such a job is being moved to another queue
--   taken: keys that new jobs take, and what UNIQUE is to have for them, in turns
--   windows: scores and members for WINDOWS; false if there are none
--   cut_short: keys whose windows go on no more; false if there are none
--   met: for the reply, the jobs whose keys the call's jobs meet; nil if there are none
--   updated: those of them that get what others have, see meet_key; false if there are none
--   heads: by class, and by the length and the scope of a key, the header of the record of a job with it
local function uniques_of_call(keys)
  redis.call('ZCARD', WINDOWS)
  local owners, values = {}, redis.call('HMGET', UNIQUE, unpack(keys))
  for i = 1, #keys do
    if values[i] then
      owners[keys[i]] = values[i]
    end
  end
  return {
    owners = owners, states = {}, moving = {}, taken = {}, windows = false, cut_short = false, updated = false,
    heads = {['0'] = {}, ['1'] = {}, ['2'] = {}},
  }
end

-- Finds out in which states the jobs are that have unique keys of a call.
local function find_holders(u)
  local states, moving, others = u.states, u.moving, {}
  for _, value in pairs(u.owners) do
    local other = string.match(value, ' (.+)$')
    if other and not states[other] then
      states[other] = redis.call('HEXISTS', JOBS, other) == 1 and '0' or 'g'
      if states[other] == '0' then
        others[#others + 1] = other
      end
    end
  end
  if #others == 0 then
    return
  end
  for _, state in pairs(terminal_states()) do
    if redis.call('ZCARD', state.set) > 0 then
      for i, score in ipairs(redis.call('ZMSCORE', state.set, unpack(others))) do
        states[others[i]] = score and state.met or states[others[i]]
      end
    end
  end
  for _, class in ipairs({'1', '0', '2', 'b', 'a', 'c', 's'}) do
    local left, members = {}, {}
    for _, other in ipairs(others) do
      if states[other] == '0' then
        left[#left + 1], members[#members + 1] = other, class .. other
      end
    end
    if #left == 0 or redis.call('ZCARD', DUE) == 0 then
      break
    end
    for i, score in ipairs(redis.call('ZMSCORE', DUE, unpack(members))) do
      if score then
        states[left[i]], moving[left[i]] = 's', tonumber(score) >= due_when_held -- it is being moved
      end
    end
  end
end

-- Puts in new jobs that have a unique key which no other job has, and are ready at once, from job j on. Returns the number of the first one that isn't
-- such. judge_other would do the same.
local function take_with_keys(u, request, found, intake, j)
  local args, ids, classes, details, keys, present, room = request.args, request.ids, request.classes, request.details, request.keys, found.present, found.room
  local outcomes, records, seen, ready, fresh, longest = intake.outcomes, intake.records, intake.seen, intake.ready, intake.fresh, intake.longest
  local owners, taken, heads, byte, n = u.owners, u.taken, u.heads, string.byte, #ids
  local k = #taken
  while j <= n do
    local id, key = ids[j], keys[j]
    if details[j] ~= 'u' or fresh >= room or present[j] or seen[id] or owners[key] then
      break
    end
    local class, text, envelope = classes[j], args[4 * j - 1], args[4 * j + 1]
    if #envelope + #text - 1 > longest then
      longest = #envelope + #text - 1
    end
    local scope = byte(text, 6)
    local shape = #text * 256 + scope
    local head = heads[class][shape]
    if not head then
      local part = #text - 3
      head = '\1' .. class .. '\0\4' .. intake.at .. intake.at .. string.char(math.floor(part / 256), part % 256) .. string.sub(text, 4, 6)
      heads[class][shape] = head
    end
    records[2 * fresh + 1], records[2 * fresh + 2] = id, head .. key .. envelope
    fresh, seen[id] = fresh + 1, '0'
    local holder = (scope == 101 and 'e ' or 's ') .. id
    owners[key] = holder
    taken[k + 1], taken[k + 2] = key, holder
    k = k + 2
    local list = ready[class]
    if list then
      list[#list + 1] = id
    else
      ready[class] = {id}
    end
    outcomes[j] = '1'
    j = j + 1
  end
  intake.fresh, intake.longest = fresh, longest
  return j
end

-- Returns the outcome for job j if another job has its unique key: 'u', or 'U' if that one gets what this one has. Else returns nil, and of a throttled job that meets a window
-- the end of that: it is due then.
local function meet_key(u, request, j, detail, intake)
  local value, scope = u.owners[detail.key], detail.scope
  if not value then
    return nil
  end
  local till, other = string.match(value, '^(%w+) (.+)$')
  local ends, state = tonumber(till), intake.seen[other] or u.states[other]
  if ends and ends > intake.now and scope == 't' then
    return nil, ends
  elseif ends and ends > intake.now or not ends and (state == '0' or state == 's') then
    local updates = detail.update and till == scope and (scope == 's' or scope == 't') and not u.moving[other]
    if updates then -- it hasn't started
      u.updated = u.updated or {}
      table.insert(u.updated, {id = other, class = request.classes[j], detail = detail, envelope = request.args[4 * j + 1]})
    end
    u.met = u.met or {}
    table.insert(u.met, state .. other)
    return updates and 'U' or 'u'
  end
end

-- Has a new job take its unique key. ends is the end of the window that a throttled one meets.
local function take_key(u, detail, id, now, ends)
  local key = detail.key
  local till = detail.scope == 'w' and digits(now + detail.window)
  u.owners[key] = (till or detail.scope) .. ' ' .. id
  u.taken = appended(u.taken, key, u.owners[key])
  if till then
    u.windows = appended(u.windows, till, key)
  end
  if ends then
    u.cut_short = appended(u.cut_short, key)
  end
end

-- Writes which unique keys new jobs have.
local function put_keys(u, now)
  if #u.taken == 0 then
    return
  end
  redis.call('HSET', UNIQUE, unpack(u.taken))
  if u.windows then
    redis.call('ZADD', WINDOWS, unpack(u.windows))
    drop_windows(now, 10 + #u.windows)
  end
  if u.cut_short then
    redis.call('ZREM', WINDOWS, unpack(u.cut_short)) -- the job that is due then has the key; the window may be of this call
  end
end
