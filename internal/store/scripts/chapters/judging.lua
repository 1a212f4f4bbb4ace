-- The outcomes for jobs that aren't bare: what the reply of enqueue.lua says. Nothing here writes: what is to be written is collected.

-- Returns what terminal_states does, which is called once.
local function ended_states(special)
  special.ended = special.ended or terminal_states()
  return special.ended
end

-- Returns the outcome for a job whose ID another job has, by the state of that one. If replaces is true and that one has ended, the new one replaces it: then
-- returns what new_special says of replaced, too.
local function judge_present(special, id, replaces)
  for _, state in pairs(ended_states(special)) do
    if redis.call('ZSCORE', state.set, id) then
      if not replaces then
        return state.met
      end
      return string.upper(state.met), {id, state, redis.call('HSTRLEN', JOBS, id)}
    end
  end
  for _, class in ipairs({'0', '1', '2', 's', 'a', 'b', 'c'}) do
    if redis.call('ZSCORE', DUE, class .. id) then
      return 's'
    end
  end
  return '0'
end

-- Collects what is to be written for a job that is put in. us is its time if it is due later, or if it is of a tick.
local function put_job(request, intake, special, j, detail, us, later)
  local id, class, group, lines = request.ids[j], request.classes[j], detail.group, special.lines
  if group and not us then
    lines.place = math.max(lines.place + 1, intake.now)
    us = lines.place
  end
  local due_at = intake.at
  if us then
    -- The times of a call mostly differ in the last byte alone.
    local low, stamps = us % 256, special.stamps
    stamps[us - low] = stamps[us - low] or string.sub(eight_bytes(us), 1, 7)
    due_at = stamps[us - low] .. string.char(low)
  end
  local record, size = record_of(detail, class, intake.at, due_at, request.args[4 * j + 1])
  intake.longest = math.max(intake.longest, size)
  intake.records[2 * intake.fresh + 1], intake.records[2 * intake.fresh + 2] = id, record
  intake.fresh, intake.seen[id] = intake.fresh + 1, later and 's' or '0'
  if later then
    local due = special.due or {}
    local k = #due
    due[k + 1], due[k + 2], special.due = digits(us), (group and later_class(class) or class) .. id, due
  elseif group then
    local k = #lines.members + 1
    lines.keys[k], lines.classes[k], lines.members[k] = group, class, line_at(class, group, us, id)
  else
    intake.ready[class] = appended(intake.ready[class], id)
  end
  local expires = detail.extras and string.byte(detail.extras, 2) % 16 >= 8 and expiry_of(record)
  if expires then
    special.expires = appended(special.expires, digits(expires), id)
  end
end

-- Puts a job in, unless its ID or its unique key keeps it out, or full says that there is no room for it. Returns the outcome.
local function admit(request, found, intake, special, j, detail, full)
  local id, now, ticks, us = request.ids[j], intake.now, detail.entry and not detail.entry.run, detail.us
  local outcome, old = intake.seen[id], nil
  if not outcome and found.present[j] then
    outcome, old = judge_present(special, id, not detail.cautious and not ticks)
  end
  if outcome and not old then
    return ticks and 't' or outcome -- 't': the tick's mark was missing, but its job exists
  end
  if detail.key then
    local met, ends = meet_key(special.uniques, request, j, detail, intake)
    if met then
      return met
    end
    us = ends or us
    if not full then
      take_key(special.uniques, detail, id, now, ends)
    end
  end
  if full then
    return 'n' -- a job that has ended stays
  end
  if old then
    special.replaced = appended(special.replaced, old)
  end
  local later = not ticks and us and us > now
  put_job(request, intake, special, j, detail, (ticks or later) and us, later)
  return outcome or '1'
end

-- Returns the details of job j: those that read_details has read, or the same of a job without.
local function details_of(request, j)
  local kind, key, text = request.details[j], request.keys[j], request.args[4 * j - 1]
  if kind and kind ~= 'u' and kind ~= 'g' then
    return kind
  end
  local detail = new_details(false, '\1', false)
  detail.extras = kind and string.sub(text, 2)
  if kind == 'u' then
    detail.scope, detail.key = string.sub(text, 6, 6), key
  elseif kind then
    detail.group = key
  end
  return detail
end

-- Finds the outcome for job j, of any kind, and puts it in if the outcome says so.
local function judge_other(request, found, intake, special, j)
  local detail = details_of(request, j)
  local entry, outcome, ahead = detail.entry, nil, false
  local ticks = entry and not entry.run
  local full = intake.fresh >= found.room and not ticks -- a tick is never refused
  if ticks then
    outcome, ahead = special.cron.judge(entry, detail.us)
  elseif entry and full and not found.present[j] then
    outcome = 'n'
  end
  if not outcome and entry and entry.overlap then
    local id = request.ids[j]
    outcome = special.cron.judge_overlap(ended_states(special), intake.seen, entry, id, detail.group, not found.present[j] and not intake.seen[id])
  end
  if not outcome then
    outcome = admit(request, found, intake, special, j, detail, full)
    if ahead and outcome == '1' then
      outcome = 'r'
    end
  end
  intake.outcomes[j] = outcome
end
