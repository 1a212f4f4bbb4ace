-- A step of claim.lua: settles the deliveries of the call, and keeps the notes of those that run on or will run again.
local settled, n = {}, 0 -- ids that completed
local marked -- ids of jobs that were cancelled while they ran
local left = {} -- the groups that the jobs of the call don't hold any more
for j = 1, completed do
  local i = fixed - 1 + 2 * j
  local token = ARGV[i + 1]
  if held[j] == token then
    n = n + 1
    settled[n] = ARGV[i]
  elseif held[j] and string.find(held[j], token .. '  ', 1, true) == 1 then -- it has no flags
    local stop = string.find(held[j], ' ', #token + 3, true) -- a unique key follows
    n = n + 1
    settled[n] = ARGV[i]
    if stop ~= #token + 3 then
      left[#left + 1] = string.sub(held[j], #token + 3, stop and stop - 1 or -1)
    end
    if not stop then
      held[j] = token -- so that nobody looks for its unique key
    end
  elseif not owns(j, token) then
    refused[#refused + 1] = j
  else
    -- include: is_marked, group_held
    left[#left + 1] = group_held(held[j])
    if is_marked(held[j]) then
      marked = marked or {}
      marked[#marked + 1] = ARGV[i]
      overruled[#overruled + 1] = j
    else
      n = n + 1
      settled[n] = ARGV[i]
    end
  end
end
-- include: read_marks

-- The first write is one that Redis permits when it is out of memory, and with it all that
-- follows.
if n == 0 then
  redis.call('HDEL', INFLIGHT, '')
else
  finish('completed', settled)
  redis.call('HDEL', INFLIGHT, unpack(settled))
end
for k = 1, #overruled do
  -- include: finish_marked
  local id = marked[k]
  finish_marked(id, marks[id], true)
  redis.call('HDEL', INFLIGHT, id)
end
if notes > 0 then
  local spans, j = {}, #held - notes
  for i = first_note, others - 1, 3 do
    j = j + 1
    if owns(j, ARGV[i + 1]) then
      spans[#spans + 1] = ARGV[i]
      spans[#spans + 1] = ARGV[i + 1] .. ' ' .. ARGV[i + 2]
    end
  end
  if #spans > 0 then
    redis.call('HSET', NOTES, unpack(spans))
  end
end
if others <= #ARGV then
  -- include: settle_others
end
if g and #left > 0 then
  g.leave(left)
end
