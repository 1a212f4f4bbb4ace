-- Repairs of what is wrong with a job, or with the queue.

-- Begins a repair. The functions of this chapter are given it:
--   id: the job, '' if the repair is about the queue
--   now: the time (us)
--   withheld: see read_settings
--   channels: what stands before a session in the name of its channel
--   first_session: of KEYS
--   sessions: the numbers of the keys of sessions, by their names
--   woken: whether to wake a worker at the end
--   groups: what lines_of_groups returns, once a step needs it
local function new_repair(id, now, withheld, channels, first_session, sessions)
  return {id = id, now = now, withheld = withheld, channels = channels, first_session = first_session, sessions = sessions, woken = false}
end

-- Notes that there may be work for a worker. None is woken while the queue is held back.
local function wake_for(repair, work)
  repair.woken = repair.woken or work and repair.withheld == ''
end

-- Returns what lines_of_groups returns for all steps of the repair, with the group of this key read.
local function group_for(repair, key)
  repair.groups = repair.groups or lines_of_groups()
  repair.groups.load({key})
  return repair.groups
end

-- Has the right number of jobs hold a group if it is held by as many as it was said to be. Returns whether the right number holds it then.
local function correct_holders(g, key, said, right)
  local holders = g.holders(key)
  if holders == said then
    g.hold(key, math.max(right - said, 0))
    for _ = right + 1, said do
      g.leave({key})
    end
  end
  return holders == said or holders == right
end

-- Gives the lines of a group the states and the turns that their jobs need. Returns whether a line got a turn.
local function correct_lines(g, key)
  local turns = {}
  for class = 0, 2 do
    local line = class .. key
    local waits, score, parked = line_facts(line)
    local rests = parked and g.state(key, class) == 'w' -- the group's rate allows no job yet
    local turn = score and math.floor(tonumber(score) / turn_span) == class
    if score and (rests or not (turn and waits and g.room(key) > 0)) then
      redis.call('ZREM', TURNS, line)
      turn = false
    end
    if not waits then
      g.set(key, tostring(class), '.')
    elseif rests then
      g.set(key, tostring(class), 'w')
    elseif g.room(key) <= 0 then
      g.set(key, tostring(class), 'b')
    elseif turn then
      g.set(key, tostring(class), 't')
    else
      g.turn(key, tostring(class), turns)
    end
  end
  if #turns > 0 then
    redis.call('ZADD', TURNS, unpack(turns))
  end
  return #turns > 0
end

-- Adds the steps that are about the job to steps, see steps_of. The job is as the call was told, so they don't look whether it still is.
local function add_steps_of_job(steps, repair)
  local id = repair.id

  -- The job comes to the head of the ready list of a class, if at is 'head', else to its tail.
  function steps.list(class, at)
    repair.woken = make_ready(ready_lists[class], {id}, at == 'head', repair.withheld) or repair.woken
    return true
  end

  -- It leaves a ready list, as many times as count says to LREM.
  function steps.unlist(class, count)
    redis.call('LREM', ready_lists[class], count, id)
    return true
  end

  -- It comes into the line of its group.
  function steps.line()
    local record = redis.call('HGET', JOBS, id)
    local key = record and group_of(record)
    if key then
      wake_for(repair, group_for(repair, key).join({line_of(record, key, id)}))
    end
    return key
  end

  -- It leaves the line.
  function steps.unline()
    local record = redis.call('HGET', JOBS, id)
    local key = record and group_of(record)
    if key then
      group_for(repair, key).quit(line_of(record, key, id))
    end
    return key
  end

  -- It waits in DUE under a class, until a time (us).
  function steps.due(class, us)
    redis.call('ZADD', DUE, us, class .. id)
    wake_for(repair, true)
    return true
  end

  function steps.undue(class)
    redis.call('ZREM', DUE, class .. id)
    return true
  end

  -- It expires at a time (us); '' for never.
  function steps.expires(us)
    if us == '' then
      redis.call('ZREM', EXPIRES, id)
    else
      redis.call('ZADD', EXPIRES, us, id)
      repair.woken = true
    end
    return true
  end

  -- A session holds it, with a token and what stands behind that.
  function steps.hold(session, value)
    local k = repair.sessions[session]
    redis.call('HSET', KEYS[k], id, value)
    recount(session, repair.sessions)
    return true
  end

  function steps.unhold(session)
    local k = repair.sessions[session]
    redis.call('HDEL', KEYS[k], id)
    recount(session, repair.sessions)
    return true
  end

  -- It leaves the set of a terminal state.
  function steps.unend(name)
    forget(terminal_states()[name], id, redis.call('HSTRLEN', JOBS, id))
    return true
  end

  -- It waits for its flow, which is to be looked at.
  function steps.await()
    local record = redis.call('HGET', JOBS, id)
    local role, ref = waits_by(record and links_of(record) or '')
    local name = ref and string.match(ref, '^[^{]+')
    if name then
      redis.call('ZADD', AWAITING, '0', waiter_of(role, name, id))
      redis.call('HSET', FLOWNOTES, name .. '{', digits(repair.now))
    end
    return name
  end

  function steps.unawait(waits)
    redis.call('ZREM', AWAITING, waits .. id)
    return true
  end

  function steps.unnote()
    redis.call('HDEL', NOTES, id)
    return true
  end

  -- It has a mark in CANCELS.
  function steps.mark(mark)
    redis.call('HSET', CANCELS, id, mark)
    return true
  end

  function steps.unmark()
    redis.call('HDEL', CANCELS, id)
    return true
  end

  -- It gets a unique key of a scope, if nobody has the key.
  function steps.key(scope, key)
    return redis.call('HEXISTS', UNIQUE, key) == 0 and redis.call('HSET', UNIQUE, key, scope .. ' ' .. id)
  end
end

-- Adds the steps that are about flows to steps, see steps_of. A worker does what follows from them within a minute.
local function add_steps_of_flows(steps, repair)
  -- A flow has the right counts if it is as it was said to be: counts has how many members are open, how many jobs wait for it or have waited, and what FLOWS had.
  function steps.flow(name, counts)
    local open, waiters, said = string.match(counts, '^(%d+) (%d+) (.+)$')
    local f = redis.call('HGET', FLOWS, name) == said and read_flow({}, name)
    if not f then
      return false
    end
    f.open, f.waiters, f.bad = tonumber(open), tonumber(waiters), f.dead + f.gone
    f.total = f.open + f.ok + f.bad
    unflag_flow(f, f.bad <= 0 and '[dn]' or 'd')
    redis.call('HSET', FLOWS, name, flow_text(f))
    redis.call('ZADD', FLOWTIMES, digits(repair.now), name)
    if is_flow(f, 'x') then
      redis.call('HSETNX', FLOWNOTES, name .. '{x', 'run 0 0 0')
    else
      redis.call('HDEL', FLOWNOTES, name .. '{x')
    end
    return steps.page(name)
  end

  -- The jobs that wait for a flow are looked at.
  function steps.page(name)
    redis.call('HSET', FLOWNOTES, name .. '{', digits(repair.now))
    return true
  end

  -- A member of AWAITING goes if it is no place of a job.
  function steps.unwait(member)
    local role, name, id = string.match(member, '^(.)([^{]+){(.+)$')
    local record = id and redis.call('HGET', JOBS, id)
    if record and role ~= 'c' and awaits(id, record) == member or role == 'c' and read_flow({}, name) then
      return false
    end
    redis.call('ZREM', AWAITING, member)
    return true
  end
end

-- Adds the steps that are about groups and their lines to steps, see steps_of.
local function add_steps_of_groups(steps, repair)
  -- The lines of a group get the states and the turns that their jobs need. counts is '', or the number of jobs that were said to hold the group, and
  -- that of those that do, which the group gets as well.
  function steps.group(key, counts)
    local g = group_for(repair, key)
    local said, right = string.match(counts, '^(%d+) (%d+)$')
    if said and not correct_holders(g, key, tonumber(said), tonumber(right)) then
      return false
    end
    wake_for(repair, correct_lines(g, key))
    return true
  end

  -- A member of LINED goes that isn't the place of a job.
  function steps.unlined(member)
    return stray_in_line(member) and redis.call('ZREM', LINED, member)
  end

  -- A member of TURNS goes that can't be a line.
  function steps.unturned(member)
    return not string.find(member, '^[012][sg].') and redis.call('ZREM', TURNS, member)
  end

  -- A field of GROUPS goes that can't be the key of a group.
  function steps.ungrouped(key)
    return not string.find(key, '^[sg].') and redis.call('HDEL', GROUPS, key)
  end
end

-- Adds the steps that are about other things of the queue to steps, see steps_of.
local function add_steps_of_queue(steps, repair)
  -- The largest record has at least so many bytes.
  function steps.largest(bytes)
    local largest = redis.call('HGET', STATS, 'largest')
    return (not largest or (tonumber(largest) or 0) < tonumber(bytes)) and redis.call('HSET', STATS, 'largest', bytes)
  end

  -- The last token was at least this one.
  function steps.fence(token)
    return (tonumber(redis.call('GET', FENCE) or '0') or 0) < tonumber(token) and redis.call('SET', FENCE, token)
  end

  -- A session is counted right for the queue's limit of running jobs: one that waits may run now.
  function steps.count(session)
    wake_for(repair, recount(session, repair.sessions))
    return true
  end

  -- A session with deliveries is registered, as one that has expired now.
  function steps.open(session)
    local k = repair.sessions[session]
    local holds = k and redis.call('HLEN', KEYS[k]) > 0
    if holds and not redis.call('ZSCORE', SESSIONS, session) then
      redis.call('ZADD', SESSIONS, digits(repair.now), session)
      repair.woken = true
    end
    return holds
  end

  -- An address of no session goes.
  function steps.idle(address)
    return is_strange(address, repair.channels) and redis.call('ZREM', IDLE, address)
  end

  -- A member of DUE goes that has no class or no ID.
  function steps.odd(member)
    return (#member < 2 or not ready_lists[string.sub(member, 1, 1)]) and redis.call('ZREM', DUE, member)
  end

  -- A unique key goes for which UNIQUE has a value that is no longer so.
  function steps.unkey(key, value)
    local wrong = redis.call('HGET', UNIQUE, key) == value and key_fault(key, value, repair.first_session)
    if wrong then
      redis.call('HDEL', UNIQUE, key)
      redis.call('ZREM', WINDOWS, key)
    end
    return wrong
  end

  -- The bytes of a terminal state are counted right. found has the counter, the members and the deaths of the state, as sum.lua returned them, and the
  -- right counter.
  function steps.bytes(name, found)
    local counter, members, ended, right = string.match(found, '^(%S*) (%d+) (%S*) (%d+)$')
    local state = terminal_states()[name]
    local counted = redis.call('HGET', STATS, state.bytes) or ''
    return right and (counter == counted or right == counted) and tonumber(members) == redis.call('ZCARD', state.set)
      and ended == (redis.call('HGET', STATS, name) or '') and redis.call('HSET', STATS, state.bytes, right)
  end
end

-- Returns the steps of a repair by their names, the verbs. Each is a function of two values at most. Those that are about the queue look first whether
-- it is still so. Each returns nil or false if it isn't, else something else. A step counts as done if all is already as it would have it: the call may
-- have been sent before, and its reply was lost.
local function steps_of(repair)
  local steps = {}
  add_steps_of_job(steps, repair)
  add_steps_of_groups(steps, repair)
  add_steps_of_flows(steps, repair)
  add_steps_of_queue(steps, repair)
  return steps
end
