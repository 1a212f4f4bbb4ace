-- A step of enqueue.lua: finds the outcome for each job, and collects what to write for the jobs that are put in.
local at = stamp(now)
local heads = {} -- the header of a plain job's record, by class
local keyed_heads -- of a job with a unique key, by class, and by its length and scope
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
local rounded, place_head -- a place that is a multiple of 10, and what stands in front of the last digit of those from it on
local ends, ones, lengths -- by number: bytes; digits; the lengths that stand in front of a group's key
local grouped_head -- of the record of a job of a group: what follows the class
if keyed then
  keyed_heads = {['0'] = {}, ['1'] = {}, ['2'] = {}}
end
if grouped then
  ends, ones, lengths, grouped_head = {}, {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}, {}, '\0\1' .. at
end
if keys_held then
  -- include: read_holders
end
local refused = false -- some job was, since there is no room
for j = 1, n do
  local id = ids[j]
  local key = keyed and keyed[j]
  local group = grouped and grouped[j]
  if details[j] or fresh >= room or present[j] or seen[id] or key and keys_held[key] then
    -- include: judge_other
  elseif key then
    -- include: judge_keyed
  elseif group then
    -- include: judge_grouped
  else
    -- include: judge_plain
  end
end
longest = longest + 20
