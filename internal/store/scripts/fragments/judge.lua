-- include: digits, stamp, with_extras, state_of, judge_tick

-- Part of enqueue.lua. Finds the outcome for each job, and what is to be written of those that go in. Returns how many these are,
-- and how many bytes the longest record has.
local function judge()
  local at = stamp(now)
  local heads = {} -- of the records of jobs that are ready now
  local seen, fresh, longest = {}, 0, 4096 - 20
  for j = 1, n do
    local id, class, us = ids[j], classes[j], times[j]
    local outcome, entry, ahead, later = '1', ticks[j], false, false
    if entry then
      outcome, ahead = judge_tick(entry, us)
    elseif us then
      us = math.min(delays[j] and now + us or us, 9007199254740991) -- in the year 2255; a double holds no more
      later = us > now
    end
    if outcome == '1' then
      if seen[id] then
        outcome = seen[id]
      elseif present[j] then
        local state
        outcome, state = state_of(id)
        if state and not cautious[j] and not entry then
          outcome = string.upper(outcome)
          replaced[#replaced + 1] = {id, state, redis.call('HSTRLEN', JOBS, id)}
        end
      end
      if outcome == '1' or outcome == 'D' or outcome == 'C' then
        seen[id] = later and 's' or '0'
        local envelope = ARGV[fixed + 4 * j]
        if extras[j] then
          envelope = with_extras(extras[j], envelope)
        end
        if #envelope > longest then
          longest = #envelope
        end
        records[2 * fresh + 1] = id
        if extras[j] or later or entry then
          local flags = extras[j] and string.sub(extras[j], 2, 2) or '\0'
          records[2 * fresh + 2] = '\1' .. class .. '\0' .. flags .. at .. (us and stamp(us) or at) .. envelope
        else
          heads[class] = heads[class] or '\1' .. class .. '\0\0' .. at .. at
          records[2 * fresh + 2] = heads[class] .. envelope
        end
        fresh = fresh + 1
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
  return fresh, longest + 20
end
