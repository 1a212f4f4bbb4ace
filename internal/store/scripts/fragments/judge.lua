-- A step of enqueue.lua: finds the outcome for each job, and what is to be written of those that go in.
local at = stamp(now)
local heads = {} -- the header of a plain job's record, by class
local outcomes, records, due = {}, {}, {}
local marked, replaced -- ticks, and terminal jobs that others take the place of, if there are any
local terminal -- terminal_states, once they are asked for
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
