-- A step of enqueue.lua: finds the outcome for each job, and collects what to write for the jobs that are put in.
local at = stamp(now)
local heads = {} -- the header of a plain job's record, by class
local outcomes, records, due = {}, {}, {}
local marked, replaced -- marked: ticks; replaced: terminal jobs that are replaced; nil if there are none
local terminal -- terminal_states, once a step needs them
local seen, fresh, longest = {}, 0, 4096 - 20
for j = 1, n do
  local id = ids[j]
  if not details[j] and not present[j] and not seen[id] then
    -- include: judge_plain
  else
    -- include: judge_other
  end
end
longest = longest + 20
