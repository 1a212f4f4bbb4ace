-- A step of enqueue.lua: finds the outcome for a job of any kind.
local class, detail = classes[j], details[j] or {}
local us, entry, extras = detail.us, detail.entry, detail.extras
local outcome, ahead, later = '1', false, false
if entry then
  -- include: judge_tick
elseif us then
  us = math.min(detail.delayed and now + us or us, 9007199254740991) -- in the year 2255; a double holds no more
  later = us > now
end
if outcome == '1' then
  if seen[id] then
    outcome = seen[id]
  elseif present[j] then
    -- include: judge_present
  end
  if outcome == '1' or outcome == 'D' or outcome == 'C' or outcome == 'F' then
    -- include: make_record
    if later then
      due[#due + 1] = digits(us)
      due[#due + 1] = class .. id
    else
      local list = ready_now[class]
      list[#list + 1] = id
    end
    if ahead then
      outcome = 'r'
    end
  elseif entry then
    outcome = 't' -- the tick's mark was missing, but its job exists
  end
end
outcomes[j] = outcome
