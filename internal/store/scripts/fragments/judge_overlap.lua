-- A step of enqueue.lua: finds the outcome for a job of an entry that has a policy for jobs that overlap. It is 'o' if a job of the entry is
-- live and the policy leaves new ones out: with 's' any, with 'q' one that hasn't begun, or that isn't in the job's serial group. Else the job
-- stands in front of those that are live, at most eight in all.
local name, live, stays_out = entry or detail.run, {}, false
if not terminal then
  -- include: terminal_states
end
for other in string.gmatch(jobs_of[name], '[!-z|~]+') do
  local ended = not seen[other] and redis.call('HEXISTS', JOBS, other) == 0
  for _, state in pairs(terminal) do
    ended = ended or redis.call('ZSCORE', state.set, other)
  end
  if not ended then
    live[#live + 1] = other
    if detail.overlap == 'q' then
      -- include: judge_queued
    end
  end
end
if stays_out or detail.overlap == 's' and #live > 0 then
  outcome = 'o'
elseif not present[j] and not seen[id] then
  table.insert(live, 1, id)
  jobs_of[name] = table.concat(live, ' ', 1, math.min(#live, 8))
  marked = marked or {}
  marked[#marked + 1] = 'jobs ' .. name
  marked[#marked + 1] = jobs_of[name]
end
