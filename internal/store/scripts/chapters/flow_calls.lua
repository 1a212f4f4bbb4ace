-- Calls that make flows, seal and cancel them, and that forget them.

-- Reads the jobs that wait for a new flow. From args[first] on, each has four arguments: a role, and id, class and envelope as in enqueue.lua. Returns a list of
-- these: role, id, class, detail, envelope. Returns nil and an error if they aren't valid.
local function read_callbacks(args, first, now)
  local list = {}
  for i = first, #args, 4 do
    local role, id, text, envelope = unpack(args, i, i + 3)
    local class, detail = read_details({}, text, '', now)
    if not class or not envelope or not string.find(role, '^[sef]$') or #id > 200 or not string.find(id, '^[!-z|~]+$') then
      return nil, invalid('a job that waits for the flow is not valid')
    end
    list[#list + 1] = {role = role, id = id, class = class, detail = detail, envelope = envelope}
  end
  return list
end

-- Puts the jobs in that wait for a new flow.
local function put_callbacks(acts, f, callbacks)
  local records, members, at, due_at, grown = {}, {}, eight_bytes(acts.now), eight_bytes(due_when_held), 0
  for _, c in ipairs(callbacks) do
    local record = record_of(c.detail, c.class, at, due_at, c.envelope)
    grown = math.max(grown, #record)
    appended(records, c.id, record)
    appended(members, '0', waiter_of(c.role, f.name, c.id))
  end
  if #records > 0 then
    redis.call('ZADD', AWAITING, unpack(members))
    redis.call('HSET', JOBS, unpack(records))
    note_change('enqueued', #callbacks)
    f.waiters = #callbacks
    acts.grown = math.max(acts.grown, grown)
  end
end

-- Returns a new flow without members, which its producer is to seal. flags are those that it has from its beginning, behind 'u'.
local function new_flow(ends, name, mark, within, till, flags)
  local f = {name = name, mark = mark, ref = name .. '{' .. mark}
  f.flags, f.total, f.open, f.bad, f.ok, f.dead, f.gone, f.waiters, f.lost, f.given = 'u' .. flags, 0, 0, 0, 0, 0, 0, 0, 0, 0
  f.created, f.since, f.within, f.till, f.digest = ends.now, ends.now, within, till, '-'
  ends.flows = ends.flows or {}
  ends.flows[name] = f
  return f
end

-- How long (us) a flow is remembered that is over if jobs that have waited for it may be run again: 30 days.
local lost_flow_age = 2592000000000

-- Forgets a flow that is over, if its time has come. While jobs wait that were cancelled since it failed, it has 'x': none of them can be run again from then on.
local function forget_flow(acts, f)
  local kept = f.since + (f.lost > 0 and not is_flow(f, 'x') and lost_flow_age or flow_age)
  if f.waiters > 0 or kept > acts.now then
    redis.call('ZADD', FLOWTIMES, digits(math.max(kept, acts.now + 3600000000)), f.name)
    return
  end
  local stale = redis.call('ZRANGE', AWAITING, '[c' .. f.name .. '{', '(c' .. f.name .. '|', 'BYLEX', 'LIMIT', '0', '100')
  if #stale == 0 then
    redis.call('ZREM', FLOWTIMES, f.name)
    redis.call('HDEL', FLOWS, f.name)
    redis.call('HDEL', FLOWNOTES, f.name .. '{', f.name .. '{x')
    return
  end
  redis.call('ZREM', AWAITING, unpack(stale))
  if not is_flow(f, 'x') then
    flag_flow(f, 'x')
    touch_flow(acts.ends, f)
  end
end

-- Looks at flows whose time has come, 20 at most: cancels those that nobody has sealed, or that have lasted too long, and forgets those that have been over for long enough.
-- Returns those that it has cancelled: '1', or '0' of one that was not sealed in time, and the name.
local function look_at_flows(acts)
  local late = {}
  for _, name in ipairs(redis.call('ZRANGE', FLOWTIMES, '-inf', digits(acts.now), 'BYSCORE', 'LIMIT', '0', '20')) do
    local f = read_flow(acts.ends, name)
    local at = f and flow_due(f)
    if not f then
      redis.call('ZREM', FLOWTIMES, name)
    elseif is_flow(f, 'd') then
      forget_flow(acts, f)
    elseif at and at <= acts.now then
      late[#late + 1] = (f.till > 0 and f.created + f.till <= acts.now and '1' or '0') .. name
      cancel_flow(acts.ends, f)
    else
      time_flow(f)
    end
  end
  return late
end

-- Forgets what members have added to flows that are forgotten, in a page of ADDED. Returns the cursor to go on with.
local function forget_added(ends, cursor)
  local page, over = redis.call('HSCAN', ADDED, cursor, 'COUNT', '100'), {}
  for i = 1, #page[2], 2 do
    local ref = string.match(page[2][i + 1], '^%d+ (.+)$')
    if not ref or not read_flow(ends, ref) then
      over[#over + 1] = page[2][i]
    end
  end
  if #over > 0 then
    redis.call('HDEL', ADDED, unpack(over))
  end
  return page[1]
end

-- Forgets what jobs have added that were replaced by others of their IDs.
local function forget_replaced(special)
  for _, old in ipairs(special and special.replaced or {}) do
    redis.call('HDEL', ADDED, old[1])
  end
end

-- Returns an error if the user may not run all commands of a call that changes flows, nil if it may or if the server can't say.
local function denied_flow()
  local denied = redis.acl_check_cmd and denied_command({
    {'HSET', FLOWS, '', ''}, {'HDEL', FLOWS, ''}, {'HGET', FLOWS, ''}, {'ZADD', AWAITING, '0', ''}, {'ZREM', AWAITING, ''}, {'ZRANGE', AWAITING, '0', '0'}, {'HSET', FLOWNOTES, '', ''},
    {'ZADD', FLOWTIMES, '0', ''}, {'HSET', JOBS, '', ''}, {'HDEL', JOBS, ''}, {'ZADD', CANCELLED, '0', ''}, {'RPUSH', HIGH, ''}, {'HINCRBY', STATS, '', '1'},
  })
  return denied and redis.error_reply('NOPERM signalbox: the Redis user may not run ' .. denied .. ', which a batch needs')
end
