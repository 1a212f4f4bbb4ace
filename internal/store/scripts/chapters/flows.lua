-- Flows: the ends of members are counted, and jobs that wait for that go on.

-- How many jobs that wait for flows a call handles. What it leaves has a note.
local waiters_a_call = 50

-- How long (us) a flow is remembered that is over: a day.
local flow_age = 86400000000

-- Returns what FLOWS has for a flow.
local function flow_text(f)
  local list = {}
  for i, n in ipairs({f.total, f.open, f.bad, f.ok, f.dead, f.gone, f.waiters, f.lost, f.given, f.created, f.since, f.within, f.till}) do
    list[i] = digits(math.max(n, 0))
  end
  return '.' .. f.flags .. ' ' .. table.concat(list, ' ') .. ' ' .. f.digest .. ' ' .. f.mark
end

-- Has nobody wait for a flow's producer any more.
local function seal_flow(ends, f)
  if is_flow(f, 'u') then
    unflag_flow(f, 'u')
    time_flow(f)
  end
  f.news = true
  touch_flow(ends, f)
end

-- Cancels a flow that isn't over. A note has passes end its members.
local function cancel_flow(ends, f)
  if is_flow(f, 'x') or is_flow(f, 'd') then
    return
  end
  flag_flow(f, 'x')
  seal_flow(ends, f)
  redis.call('ZREM', FLOWTIMES, f.name)
  redis.call('HSET', FLOWNOTES, f.name .. '{x', 'run 0 0 0')
end

-- Has a job that waited for a flow run. links and at are what links_of returns for its record.
local function release_job(acts, f, id, role, record, links, at)
  record = relinked(record, at, with_role(links, role, f.ref, string.upper(role)))
  put_waiting(acts, id, redue(record, acts.now), nil, false)
end

-- Ends a job that waited for the success of a flow. It waits again if all members complete after all, so the flow keeps its name, unless the flow was cancelled.
local function cancel_waiter(acts, f, id, record)
  local why = is_flow(f, 'x') and 'the batch was cancelled' or 'a job of the batch has not completed'
  if not is_flow(f, 'x') then
    redis.call('ZADD', AWAITING, '0', waiter_of('c', f.name, id))
  end
  why = 'job cancelled: ' .. why
  finish(acts.ends, 'cancelled', {id}, record .. ':' .. string.char(#why) .. why) -- the field last_error
end

-- Has a job wait again for the success of a flow, which had been cancelled since the flow failed.
local function revive_waiter(acts, f, id, record)
  local state = terminal_states().cancelled
  if not redis.call('ZSCORE', state.set, id) then
    return -- it was run again
  end
  forget(state, id, #record)
  redis.call('HSET', JOBS, id, rerun(record, due_when_held, true))
  redis.call('ZADD', AWAITING, '0', waiter_of('s', f.name, id))
  note_change('revived', 1)
  f.lost, f.waiters = f.lost - 1, f.waiters + 1
  touch_flow(acts.ends, f)
end

-- Does to a job that waits for a flow what the flow says.
local function end_wait(acts, f, id, role, verdict)
  local record = redis.call('HGET', JOBS, id)
  local links, at = links_of(record or '')
  local own, ref = waits_by(links or '')
  if own ~= (role == 'c' and 's' or role) or ref ~= f.ref then
    return -- it isn't there any more, or another job has its ID
  elseif verdict == 'revive' then
    revive_waiter(acts, f, id, record)
  elseif verdict == 'release' then
    release_job(acts, f, id, role, record, links, at)
  elseif verdict == 'cancel' then
    cancel_waiter(acts, f, id, record)
  else
    note_end(acts.ends, links, 'deleted', id)
    finish(acts.ends, 'deleted', {id})
  end
end

-- Looks at the jobs that wait for a flow, as many as the call has left. It goes by the flags alone, so it can be made again by anybody. Those that were cancelled come
-- first: if the flow is over they are released at once.
local function page_of_flow(acts, f)
  local ends = acts.ends
  for _, role in ipairs({'c', 's', 'e', 'f'}) do
    local verdict, prefix = verdict_of(f, role), waiter_of(role, f.name, '')
    if verdict and (role ~= 'c' or f.lost > 0) then
      local left = waiters_a_call - (ends.handled or 0)
      local members = redis.call('ZRANGE', AWAITING, '[' .. prefix, '(' .. role .. f.name .. '|', 'BYLEX', 'LIMIT', '0', digits(left + 1))
      for i = 1, #members do
        if i > left then
          redis.call('HSET', FLOWNOTES, f.name .. '{', digits(acts.now))
          return
        end
        ends.handled = (ends.handled or 0) + 1
        redis.call('ZREM', AWAITING, members[i])
        end_wait(acts, f, string.sub(members[i], #prefix + 1), role, verdict)
      end
    end
  end
end

-- Has a flow change its flags by what is counted, and the jobs that wait for it go on.
local function turn_flow(acts, f)
  if f.bad > 0 and not (is_flow(f, 'n') or is_flow(f, 'x') or is_flow(f, 'd')) then
    flag_flow(f, 'n')
    f.news = true
    if is_flow(f, 'q') then
      cancel_flow(acts.ends, f)
    end
  end
  if f.open <= 0 and not is_flow(f, 'u') and not is_flow(f, 'd') then
    flag_flow(f, 'd')
    f.since, f.till, f.news = acts.now, 0, true -- if an operator has it go on, it may last for any time
    redis.call('ZADD', FLOWTIMES, digits(acts.now + flow_age), f.name)
    redis.call('HDEL', FLOWNOTES, f.name .. '{x')
  end
  if f.news then
    f.news = false
    if f.waiters > 0 or f.lost > 0 then
      page_of_flow(acts, f)
    end
  end
end

-- Counts the ends that were noted. Of members that have completed, and of those that are gone, what they have added is forgotten.
local function count_ends(ends)
  local list, over = ends.linked, {}
  ends.linked = nil
  for i = 1, #list, 3 do
    local links, outcome, id = unpack(list, i, i + 2)
    for role, ref in string.gmatch(links, '(%a)(%S+)') do
      local f = role ~= 'z' and role ~= 'R' and read_flow(ends, ref)
      if f and role == 'r' then
        local count = outcome == 'completed' and 'ok' or outcome == 'dead' and 'dead' or 'gone'
        f.open, f[count] = f.open - 1, f[count] + 1
        f.bad = f.bad + (outcome == 'completed' and 0 or 1)
        if outcome ~= 'dead' and outcome ~= 'cancelled' then
          over[#over + 1] = id
        end
      elseif f then
        f.waiters, f.lost = f.waiters - 1, f.lost + ((outcome == 'dead' or outcome == 'cancelled') and 1 or 0)
      end
      if f then
        touch_flow(ends, f)
      end
    end
  end
  if #over > 0 and redis.call('HLEN', ADDED) > 0 then
    redis.call('HDEL', ADDED, unpack(over))
  end
end

-- Does what follows for flows from what the call has done, and writes those that have changed. Every call that ends jobs makes this call at its end.
local function turn_flows(acts)
  local ends, changed, texts = acts.ends, {}, {}
  while ends.linked or ends.touched do
    if ends.linked then
      count_ends(ends)
    end
    local touched = ends.touched or {}
    ends.touched = nil
    for i = 1, #touched do
      touched[i].waits = false
      changed[touched[i]] = true
      turn_flow(acts, touched[i])
    end
  end
  for f in pairs(changed) do
    texts = appended(texts, f.name, flow_text(f))
  end
  if #texts > 0 then
    redis.call('HSET', FLOWS, unpack(texts))
  end
end

