-- A claim settles deliveries, draws jobs, and grants tokens to them.

-- Returns the last token that was granted, 0 if there is none, or nil if FENCE holds no token.
local function last_token()
  local fence = redis.call('GET', FENCE) or '0'
  return #fence <= 16 and string.find(fence, '^%d+$') and tonumber(fence) <= 9007199254000000 and tonumber(fence) or nil
end

-- Reads what the session has about the deliveries of a call of claim.lua. Returns the batch, which the functions below are given:
--   args: ARGV
--   first: where the completed ones begin in args
--   completed: how many completed
--   notes: how many notes there are, nil if there are none
--   others: where those that didn't complete begin in args; the notes stand before them
--   deliveries: what the session's hash has for each delivery: of the completed ones, of the others, then of those with notes
--   refused: positions of deliveries that were superseded
--   overruled: positions of deliveries whose jobs end cancelled, whatever was asked for
--   left: the groups that jobs don't hold any more
--   marks: by ID, the marks of jobs that were cancelled while they ran; nil if there are none
local function new_batch(args, first, completed, notes)
  local others = first + 2 * completed + 3 * notes
  local batch = {args = args, first = first, completed = completed, others = others, deliveries = {}, refused = {}, overruled = {}, left = {}} -- Lua makes room for 8 fields, or for 16
  if notes > 0 then
    batch.notes = notes
  end
  if #args < first then
    redis.call('HLEN', INFLIGHT)
    return batch
  end
  local about, n = {}, 0
  for i = first, first + 2 * completed - 1, 2 do
    n = n + 1
    about[n] = args[i]
  end
  for i = others, #args, 6 do
    n = n + 1
    about[n] = args[i]
  end
  for i = first + 2 * completed, others - 1, 3 do
    n = n + 1
    about[n] = args[i]
  end
  batch.deliveries = redis.call('HMGET', INFLIGHT, unpack(about))
  return batch
end

-- Returns the IDs of the deliveries that completed, and those of completed ones whose jobs were cancelled while they ran, nil if there are none: these
-- are overruled.
local function completed_of(batch)
  local args, deliveries, left = batch.args, batch.deliveries, batch.left
  local settled, n, marked = {}, 0, nil
  for j = 1, batch.completed do
    local i = batch.first - 2 + 2 * j
    local token, value = args[i + 1], deliveries[j]
    local of, flags, group = value, '', '' -- most have the token alone
    if value ~= token then
      of, flags, group = delivery_fields(value)
    end
    if of ~= token then
      table.insert(batch.refused, j)
    else
      if group ~= '' then
        left[#left + 1] = group
      end
      if flags ~= '' and is_marked(value) then
        marked = marked or {}
        marked[#marked + 1] = args[i]
        table.insert(batch.overruled, j)
      else
        n = n + 1
        settled[n] = args[i]
      end
    end
  end
  return settled, marked
end

-- Settles all deliveries of a batch, and keeps its notes. Members of DUE that are due already are added to promotable.
local function settle(batch, ready, ends, groups, promotable)
  local settled, marked = completed_of(batch)
  if marked or batch.others <= #batch.args then
    read_marks(batch, marked)
  end
  -- The first write is one that Redis permits when it is out of memory, and with it all that follows.
  if #settled == 0 then
    redis.call('HDEL', INFLIGHT, '')
  else
    finish(ends, 'completed', settled)
    redis.call('HDEL', INFLIGHT, unpack(settled))
  end
  for k = 1, #batch.overruled do
    finish_marked(ends, marked[k], batch.marks[marked[k]], true)
    redis.call('HDEL', INFLIGHT, marked[k])
  end
  if batch.notes then
    keep_notes(batch)
  end
  if batch.others <= #batch.args then
    local ended = {}
    for k = 1, #settled do
      ended[settled[k]] = true
    end
    for k = 1, #batch.overruled do
      ended[marked[k]] = true
    end
    settle_others(batch, ready, ends, ended, groups, promotable)
  end
end

-- Takes jobs of one class, from its list and from the lines of groups, if there are groups. The list and the lines get half of what is wanted
-- each, and what the other can't use.
local function draw_class(draw, g, class, list, steady)
  local want, waiting = draw.want, draw.waiting
  local n, most = math.min(want - #draw.popped, waiting[list]), want
  if g and not draw.cut_short then
    if n > 0 then
      n = math.min(n, math.floor((want - #draw.popped + draw.odd) / 2)) -- an odd one goes to either side in turn
      most = want - n
    end
    draw_turns(draw, g, class, most, steady)
    n = math.min(want - #draw.popped, waiting[list])
  end
  if n > 0 and not draw.cut_short then
    if draw.measure then
      n = fitting(draw, list, n)
    end
    if n > 0 then
      pop(draw, list, n)
    end
  end
end

-- Grants a token to each ID that was drawn, counting up from first. Skips IDs without a record and IDs that are in flight. closer is what look_closer
-- returns, nil for a plain queue. Returns the IDs and their records.
local function grant(draw, ready, ends, closer, first)
  local popped, flags, from = draw.popped, draw.flags, draw.from
  local records = redis.call('HMGET', JOBS, unpack(popped))
  local busy = redis.call('HMGET', INFLIGHT, unpack(popped))
  local ids, bodies, grants, seen, n = {}, {}, {}, {}, 0
  local unique, g = closer and new_keys(), closer and closer.groups
  if g and g.bounded then
    pay_rates(draw, g, records, busy, seen, ends.now, closer.steady)
  end
  for i = 1, #popped do
    local id = popped[i]
    local record, behind = not busy[i] and not seen[id] and records[i] or nil, nil
    local there = record
    if g then
      record, behind = begin_delivery(draw, ready, ends, g, unique, id, from[i], record, flags[i])
    end
    if there then
      seen[id] = true
    end
    if record then
      local token = digits(first + n)
      if flags[i] then
        token = token .. flags[i]
      end
      if behind then
        token = token .. behind
      end
      grants[2 * n + 1], grants[2 * n + 2] = id, token
      n = n + 1
      ids[n], bodies[n] = id, record
      if #record > ready.grown then
        ready.grown = #record
      end
    end
  end
  if n > 0 then
    -- Redis searches a small hash from end to end, which is slow. It keeps a hash out of that form once the hash has held a value of more
    -- than 64 bytes beside others. So a batch of 16 or more adds such a value and removes it.
    if n >= 16 then
      grants[2 * n + 1], grants[2 * n + 2] = '', string.rep('-', 65)
    end
    redis.call('HSET', INFLIGHT, unpack(grants))
    if n >= 16 then
      redis.call('HDEL', INFLIGHT, '')
    end
    redis.call('SET', FENCE, digits(first + n - 1))
    if unique then
      write_keys(unique, ends.now)
    end
  end
  return ids, bodies
end

-- Reports whether a claim has to look at more than a plain queue has: limits of the settings (of the queue, of its groups, and the most jobs), keys that a
-- plain queue hasn't, or a job that comes into its group's line, of those that are due.
local function needs_closer_look(of_queue, of_groups, most, promotable)
  local none = '0 0 0 0' -- limits that say that there are none
  if of_queue and of_queue ~= none or of_groups and of_groups ~= none or most
    or redis.call('EXISTS', LINED, TURNS, GROUPS, RUNNING, LIMITS, RATES, PARKED, UNIQUE, WINDOWS, EXPIRES, FLOWS) > 0 then
    return true
  end
  for i = 1, #promotable do
    if is_later(promotable[i]) then
      return true
    end
  end
  return false
end
