-- A step of enqueue.lua: finds the outcome for a job of any kind.
local class, detail = classes[j], details[j]
if not detail then
  local text = args[fixed + 4 * j - 2]
  detail = {extras = (key or group) and sub(text, 2), group = group, unique = key, scope = key and sub(text, 6, 6)}
end
local us, entry, extras = detail.us, detail.entry, detail.extras
local outcome, ahead, later = '1', false, false
if entry then
  -- include: judge_tick
elseif us then
  us = math.min(detail.delayed and now + us or us, 9007199254740991) -- in the year 2255; a double holds no more
  later = us > now
end
local full = fresh >= room and not entry -- a tick is never refused
if detail.run and full and not present[j] then
  outcome, refused = 'n', true
end
if detail.overlap and outcome == '1' then
  -- include: judge_overlap
end
if outcome == '1' then
  if seen[id] then
    outcome = seen[id]
  elseif present[j] then
    -- include: judge_present
  end
  if detail.unique and (outcome == '1' or outcome == 'D' or outcome == 'C' or outcome == 'F') then
    -- include: judge_unique
  end
  if full and (outcome == '1' or outcome == 'D' or outcome == 'C' or outcome == 'F') then
    if outcome ~= '1' then
      replaced[#replaced] = nil -- the job that has ended stays
    end
    outcome, refused = 'n', true
  end
  if outcome == '1' or outcome == 'D' or outcome == 'C' or outcome == 'F' then
    group = detail.group
    if group and not later and not entry then
      place = math.max(place + 1, now)
      us = place
    end
    -- include: make_record
    if later then
      -- include: later_class
      due[#due + 1] = digits(us)
      due[#due + 1] = (group and later_class(class) or class) .. id
    elseif group then
      local k = lined.n + 1
      lined.n, lined.keys[k], lined.classes[k] = k, group, class
      lined.members[k] = lined.at(class, group, us, id)
    else
      local list = ready_now[class]
      list[#list + 1] = id
    end
    if detail.expires then
      -- include: expiry_of
      local at = expiry_of(records[2 * fresh])
      if at then
        expires = expires or {}
        expires[#expires + 1] = digits(at)
        expires[#expires + 1] = id
      end
    end
    if ahead then
      outcome = 'r'
    end
  elseif entry then
    outcome = 't' -- the tick's mark was missing, but its job exists
  end
end
outcomes[j] = outcome
