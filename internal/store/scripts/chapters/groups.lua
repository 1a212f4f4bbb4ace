-- The lines of groups, and their turns.

-- What the scores of turns of one class and the next are apart: 2^50.
local turn_span = 1125899906842624

-- Returns an object for the groups that a call is about. A group has a line of waiting jobs for each class, in LINED. GROUPS has for each
-- group that is in use the state of its three lines and how many jobs hold it:
--   '.': nobody waits
--   't': jobs wait, and the line has a turn in TURNS
--   'b': jobs wait, and as many jobs hold the group as may. The next one that leaves gives the line a turn, or the call that resumes a paused group
--   'w': jobs wait, and the group's rate allows none yet. The line stands in PARKED with the time at which it gets a turn
-- A turn is the member class and key. Its score is the class times 2^50 and a number that counts up. So the turns of a class are in order.
-- A job holds its group from its claim to its end. It waits for a retry as a holder if the group is serial, else it leaves.
--
-- limits is that of limits_of_groups in a claim, if there are any. Other scripts may give a turn to a line that may not go on: the claim that takes
-- the turn blocks the line.
local function lines_of_groups(limits)
  local g = {bounded = limits and limits.bounded, timed = limits and limits.timed} -- bounded: groups may have limits; timed: rates, or may be held back
  local states, order = {}, {} -- by key: the states of its lines ('.', 't', 'b', 'w') in [1] to [3], and what state_of and group_limits say; the keys
  local byte, huge = string.byte, math.huge -- a local is read faster
  local counts = {} -- numbers in digits
  local parsed = {} -- values of GROUPS: the states of the lines and how many jobs hold the group
  local tails = {} -- by class: the score of the last turn
  local numbers = {['0'] = 1, ['1'] = 2, ['2'] = 3, [0] = 1, [1] = 2, [2] = 3} -- where a state has the line of a class

  local function parse(value)
    local high, normal, low, holders = string.match(value, '^([.tbw])([.tbw])([.tbw])(%d+)$')
    return high and {high, normal, low, tonumber(holders)} or {'.', '.', '.', 0}
  end

  -- Makes the state of a group from what parse returned.
  local function state_of(key, p)
    local own = limits and (key ~= 'g{}' and limits.usual or limits.none) -- 'g{}' is of jobs without a group
    local s = { -- with all fields that each state has, so that Lua makes room for them once
      p[1], p[2], p[3], holders = p[4], changed = false, limits = own,
      most = byte(key) == 115 and 1 or own and own.running or huge, -- how many jobs may hold the group at a time. 's' is for a serial one
    }
    order[#order + 1] = key
    states[key] = s
    return s
  end

  -- Reads the groups with these keys. Each method below is for groups that were read; if joins says so, only join and save are: a job that
  -- joins a line that isn't empty changes nothing of its group, so most groups need no state of their own then.
  function g.load(keys, joins)
    local missing, n = {}, 0
    for i = 1, #keys do
      local key = keys[i]
      if not states[key] then
        n = n + 1
        states[key], missing[n] = true, key
      end
    end
    if n > 0 then
      local values = redis.call('HMGET', GROUPS, unpack(missing))
      for i = 1, n do
        local key, value = missing[i], values[i] or ''
        local p = parsed[value]
        if not p then
          p = parse(value)
          parsed[value] = p
        end
        if joins then
          states[key] = p
        else
          state_of(key, p)
        end
      end
      if limits then
        limits.load(states, missing)
      end
    end
  end

  -- Returns the state of a group: in [1] to [3] those of its lines, holders: how many jobs hold it, most: how many may.
  function g.of(key)
    return states[key]
  end

  -- Returns how many more jobs may hold the group.
  function g.room(key)
    local s = states[key]
    return s.most - s.holders
  end

  -- Returns how many jobs hold the group.
  function g.holders(key)
    return states[key].holders
  end

  -- Returns how many more jobs of the group with this state may start by its rate, and, if none may, how long it is until one may (us).
  function g.allowed(s, now)
    if not limits or not s.limits.rated and not s.held_until then
      return math.huge, 0
    end
    return limits.allowed(s, now)
  end

  -- Notes that a job which holds the group starts again. If the group's rate allows none yet, it is how long it is until one may (us), and
  -- nothing is noted.
  function g.again(key, now)
    local s = states[key]
    local allowed, pause = s.limits.allowed(s.at, now)
    if allowed > 0 and s.limits.rated then
      limits.started(key, s, 1, now)
    end
    return pause
  end

  function g.state(key, class)
    return states[key][numbers[class]]
  end

  function g.set(key, class, state)
    local s = states[key]
    s[numbers[class]], s.changed = state, true
  end

  -- Gives a line of the class a turn behind all others: adds a score and a member for ZADD to turns.
  function g.turn(key, class, turns)
    if not tails[class] then
      local base = tonumber(class) * turn_span
      local last = redis.call('ZRANGE', TURNS, '(' .. digits(base + turn_span), digits(base), 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
      tails[class] = tonumber(last[2]) or base
    end
    tails[class] = tails[class] + 1
    local n = #turns
    turns[n + 1], turns[n + 2] = digits(tails[class]), class .. key
    local s = states[key]
    s[numbers[class]], s.changed = 't', true
  end

  -- Puts jobs, members of LINED, into the lines of their groups. Returns whether any of them may be drawn. Who knows the keys and the classes of the
  -- members gives these, too.
  function g.join(members, keys, classes)
    local rows, turns, any = {}, {}, false
    for i = 1, #members do
      local class, key
      if keys then
        class, key = classes[i], keys[i]
      else
        class, key = string.match(members[i], '^(.)([^\1]+)\1')
      end
      rows[2 * i - 1], rows[2 * i] = '0', members[i]
      local state = states[key][numbers[class]]
      if state == '.' then
        if not states[key].holders then
          state_of(key, states[key])
        end
        if g.room(key) > 0 then
          g.turn(key, class, turns)
          any = true
        else
          g.set(key, class, 'b')
        end
      elseif state == 't' then
        any = true
      end
    end
    redis.call('ZADD', LINED, unpack(rows))
    if #turns > 0 then
      redis.call('ZADD', TURNS, unpack(turns))
    end
    return any
  end

  -- Takes a job out of its line other than by a turn. Returns whether it was there.
  function g.quit(member)
    if redis.call('ZREM', LINED, member) == 0 then
      return false
    end
    local class, key = string.match(member, '^(.)([^\1]+)\1')
    local line = class .. key
    if #redis.call('ZRANGE', LINED, '[' .. line .. '\1', '(' .. line .. '\2', 'BYLEX', 'LIMIT', 0, 1) == 0 then
      redis.call('ZREM', TURNS, line)
      g.set(key, class, '.')
    end
    return true
  end

  -- Notes that jobs hold their groups no more. keys has a key for each of them.
  function g.leave(keys)
    g.load(keys)
    for i = 1, #keys do
      local s = states[keys[i]]
      s.holders, s.changed = math.max(s.holders - 1, 0), true
    end
  end

  -- Gives turns to the lines that may go on, and writes what has changed. Returns whether there were such lines.
  function g.save()
    local turns, set, gone, n = {}, {}, {}, 0
    for i = 1, #order do
      local key = order[i]
      local s = states[key]
      if s.changed then
        if s.most > s.holders then
          for class = 0, 2 do
            if s[class + 1] == 'b' then
              g.turn(key, tostring(class), turns)
            end
          end
        end
        local holders = s.holders
        counts[holders] = counts[holders] or digits(holders)
        local value = s[1] .. s[2] .. s[3] .. counts[holders]
        if value == '...0' then
          gone[#gone + 1] = key
        else
          set[n + 1], set[n + 2] = key, value
          n = n + 2
        end
        s.changed = false
      end
    end
    if #turns > 0 then
      redis.call('ZADD', TURNS, unpack(turns))
    end
    if n > 0 then
      redis.call('HSET', GROUPS, unpack(set))
    end
    if #gone > 0 then
      redis.call('HDEL', GROUPS, unpack(gone))
    end
    return #turns > 0
  end

  -- Notes that n jobs which have been drawn hold the group from now on. They start at the time now, unless that is nil.
  function g.hold(key, n, now)
    local s = states[key]
    s.holders, s.changed = s.holders + n, true
    if now and n > 0 and s.limits and s.limits.rated then
      limits.started(key, s, n, now)
    end
  end

  return g
end

-- Fits what is known of groups to their new limits, which limits_of_groups has returned, and gives turns to those of their lines that may go on since. A serial group's
-- limit of running jobs is always one. Returns whether there were such lines.
local function limit_groups(keys, limits)
  local g, turns = lines_of_groups(limits), {}
  g.load(keys)
  for _, key in ipairs(keys) do
    if not g.of(key).limits.rated then
      redis.call('ZREM', RATES, key)
    end
    for class = 0, 2 do
      local state = g.state(key, class)
      if string.sub(key, 1, 1) == 'g' and state == 'b' or state == 'w' then
        g.turn(key, tostring(class), turns)
        redis.call('ZREM', PARKED, class .. key)
      end
    end
  end
  if #turns > 0 then
    redis.call('ZADD', TURNS, unpack(turns))
  end
  g.save()
  return #turns > 0
end

-- Returns whether jobs wait in a line, class and key, the score of its turn, and the time at which it gets one. Each score is nil if there is none.
local function line_facts(line)
  local first = redis.call('ZRANGE', LINED, '[' .. line .. '\1', '(' .. line .. '\2', 'BYLEX', 'LIMIT', 0, 1)
  return #first > 0, redis.call('ZSCORE', TURNS, line) or nil, redis.call('ZSCORE', PARKED, line) or nil
end

-- Reports whether a member of LINED is not the place of a job that waits there, as its record says. The second value is the key of the group
-- whose line it is in, or nil if it is in none.
local function stray_in_line(member)
  local key, id = string.match(member, '^[012]([sg][^\1]+)\1' .. string.rep('%d', 16) .. '(.+)$')
  local record = id and redis.call('HGET', JOBS, id)
  return not record or group_of(record) ~= key or line_of(record, key, id) ~= member, key
end

-- Reports whether a job of the group with this key doesn't hold the group since it waits: in its line, or until it is due and comes into the line.
local function waits_for_group(id, record, key)
  for _, class in ipairs({'a', 'b', 'c'}) do
    if redis.call('ZSCORE', DUE, class .. id) then
      return true
    end
  end
  return redis.call('ZSCORE', LINED, line_of(record, key, id)) and true or false
end
