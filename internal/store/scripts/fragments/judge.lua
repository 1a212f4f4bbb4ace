-- A step of enqueue.lua: finds the outcome for each job, and collects what to write for the jobs that are put in.
local at = stamp(now)
local heads = {} -- the header of a plain job's record, by class
local outcomes, records, due = {}, {}, {}
local marked, replaced -- marked: ticks; replaced: terminal jobs that are replaced; nil if there are none
local expires -- when jobs expire, and their ids; nil if there are none
local terminal -- terminal_states, once a step needs them
local seen, fresh, longest = {}, 0, 4096 - 20
if lined then
  -- include: line_at
  lined.at = line_at
end
local stamped, stamp_head -- a time that is a multiple of 256, and its first seven bytes
if keys_held then
  -- include: read_holders
end
local refused = false -- some job was, since there is no room
for j = 1, n do
  local id = ids[j]
  if fresh < room and not details[j] and not present[j] and not seen[id] then
    -- include: judge_plain
  else
    -- include: judge_other
  end
end
longest = longest + 20
