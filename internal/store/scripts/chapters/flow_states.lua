-- What is counted of a flow, and what follows from it for a job.

-- Returns the format of what FLOWS has for a flow, which read_flow and flow_text share: flags behind a '.', numbers, a digest or '-', and the mark.
local flow_format = '^%.(%l*) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%w+)$'

-- Returns what is known of the flow with this name, or this reference, or false if there is none. It is read once in a call:
--   name, mark, and ref: the reference, which has both
--   flags: 'u' its producer may still add to it, 'n' a member hasn't completed, 'd' it is over, 'x' it was cancelled; 'q' the first member that ends and
--   hasn't completed has it cancelled
--   total: how many jobs have ever been members; open: members that haven't ended; bad: those that have ended, and haven't completed
--   ok, dead, gone: members that have completed, that are dead, and that were cancelled or deleted
--   waiters: jobs that wait for it or have waited, and haven't ended; lost: such that are dead or cancelled
--   given: how many jobs its producer has given, also those that were left out; digest: of all of these
--   created, since: when (us) it was made; when its producer last called, and later when it was over
--   within: how long (us) it may stay unsealed after a call; till: how long (us) it may last, 0: for ever
--   news: its flags have changed, so that jobs that wait for it may go on
local function read_flow(ends, ref)
  local flows, name, mark = ends.flows or {}, string.match(ref, '^([^{]*){?(.*)$')
  ends.flows = flows
  if flows[name] == nil then
    local list = {string.match(redis.call('HGET', FLOWS, name) or '', flow_format)}
    local f = false
    if list[1] then
      for i = 2, 14 do
        list[i] = tonumber(list[i])
      end
      f = {name = name}
      f.flags, f.total, f.open, f.bad, f.ok, f.dead, f.gone, f.waiters, f.lost, f.given, f.created, f.since, f.within, f.till, f.digest, f.mark = unpack(list, 1, 16)
      f.ref = name .. '{' .. f.mark
    end
    flows[name] = f
  end
  local f = flows[name]
  return f and (mark == '' or mark == f.mark) and f
end

-- Reports whether a flow has a flag.
local function is_flow(f, flag)
  return string.find(f.flags, flag, 1, true) ~= nil
end

-- Notes that a flow has changed.
local function touch_flow(ends, f)
  if not f.waits then
    f.waits = true
    ends.touched = ends.touched or {}
    table.insert(ends.touched, f)
  end
end

-- Gives a flow a flag.
local function flag_flow(f, flag)
  f.flags = f.flags .. flag
end

-- Takes a flag from a flow.
local function unflag_flow(f, flag)
  f.flags = string.gsub(f.flags, flag, '')
end

-- Returns when (us) a flow that isn't over is to be looked at next: since nobody has sealed it, or since it has lasted long enough. Returns nil for never.
local function flow_due(f)
  local at = is_flow(f, 'u') and f.since + f.within or nil
  if f.till > 0 and not is_flow(f, 'x') then
    at = math.min(at or math.huge, f.created + f.till)
  end
  return at
end

-- Notes when a flow that isn't over is to be looked at next.
local function time_flow(f)
  local at = flow_due(f)
  if at then
    redis.call('ZADD', FLOWTIMES, digits(at), f.name)
  else
    redis.call('ZREM', FLOWTIMES, f.name)
  end
end

-- Says what becomes of a job that waits for a flow: 'release', 'cancel', 'drop', 'revive' of one that waits again for success; or nil: it goes on waiting.
local function verdict_of(f, role)
  local failed, stopped = is_flow(f, 'n'), is_flow(f, 'x')
  if role == 'c' then
    return not failed and not stopped and 'revive' or nil
  elseif role == 's' then
    return (failed or stopped) and 'cancel' or is_flow(f, 'd') and 'release' or nil
  elseif role == 'e' then
    return is_flow(f, 'd') and 'release' or nil
  end
  return failed and 'release' or is_flow(f, 'd') and 'drop' or nil
end

-- Reports whether a job that has ended can't be run again, since its flow was cancelled, or since it waited for what can't come any more.
local function flow_refuses(ends, record)
  local links = links_of(record)
  for role, ref in string.gmatch(links or '', '(%a)(%S+)') do
    local f = role ~= 'z' and read_flow(ends, ref)
    if f and role == 'R' and is_flow(f, 'x') then
      return true
    elseif f and (role == 's' or role == 'e' or role == 'f') then
      local verdict = verdict_of(f, role)
      if is_flow(f, 'x') or verdict == 'cancel' or verdict == 'drop' then
        return true
      end
    end
  end
  return false
end

-- Counts a member that had ended so again as one that hasn't. If the flow was over, it goes on.
local function reopen_flow(ends, f, outcome)
  local count = outcome == 'dead' and 'dead' or 'gone'
  f.open, f.bad, f[count] = f.open + 1, f.bad - 1, f[count] - 1
  if f.bad <= 0 and is_flow(f, 'n') then
    unflag_flow(f, 'n')
    f.news = true
  end
  if is_flow(f, 'd') then
    unflag_flow(f, 'd')
    time_flow(f)
  end
  touch_flow(ends, f)
end

-- Has a job that had ended be a member again, and wait again. state is how it had ended, and record the one that it gets. Returns the record, and whether it
-- waits: then with the member of AWAITING.
local function link_again(ends, id, record, state)
  local links, at = links_of(record)
  local waits = nil
  for role, ref in string.gmatch(links or '', '(%a)(%S+)') do
    local f = role ~= 'z' and read_flow(ends, ref)
    if f and role == 'R' and state == 'completed' then
      links = with_role(links, role, ref, 'z') -- it has completed once, whatever becomes of it now
    elseif f and role == 'R' then
      links = with_role(links, role, ref, 'r')
      reopen_flow(ends, f, state)
    elseif f then
      f.waiters, f.lost = f.waiters + 1, f.lost - (state ~= 'completed' and 1 or 0)
      touch_flow(ends, f)
      if role == 's' then
        redis.call('ZREM', AWAITING, waiter_of('c', f.name, id))
      end
      if string.lower(role) == role and not verdict_of(f, role) then
        waits = waiter_of(role, f.name, id)
      else
        links = with_role(links, role, ref, string.upper(role))
      end
    end
  end
  return links and relinked(record, at, links) or record, waits
end
