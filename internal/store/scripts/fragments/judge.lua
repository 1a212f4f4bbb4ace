-- A step of enqueue.lua: finds the outcome for each job, and what is to be written of those that go in.
local at = stamp(now)
local heads = {} -- of the records of jobs that are ready now
local outcomes, records, due = {}, {}, {}
local marked, replaced -- ticks, and terminal jobs that others take the place of, if there are any
local terminal -- terminal_states, once they are asked for
local seen, fresh, longest = {}, 0, 4096 - 20
for j = 1, n do
  local id, class, us = ids[j], classes[j], times[j]
  local outcome, entry, ahead, later = '1', ticks[j], false, false
  if entry then
    -- include: judge_tick
  elseif us then
    us = math.min(delays[j] and now + us or us, 9007199254740991) -- in the year 2255; a double holds no more
    later = us > now
  end
  if outcome == '1' then
    if seen[id] then
      outcome = seen[id]
    elseif present[j] then
      -- include: judge_present
    end
    if outcome == '1' or outcome == 'D' or outcome == 'C' then
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
      outcome = 't' -- the job of this tick is there, though the tick's mark was not
    end
  end
  outcomes[j] = outcome
end
longest = longest + 20
