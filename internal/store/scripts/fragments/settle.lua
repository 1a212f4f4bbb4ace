-- A step of claim.lua: settles the deliveries of the call, and keeps the notes of those that run on or will run again.
local settled, n = {}, 0 -- ids that completed
for j = 1, completed do
  local i = fixed - 1 + 2 * j
  local token = ARGV[i + 1]
  if held[j] == token or owns(j, token) then
    n = n + 1
    settled[n] = ARGV[i]
  else
    refused[#refused + 1] = j
  end
end
-- The first write is one that Redis permits when it is out of memory, and with it all that
-- follows.
if n == 0 then
  redis.call('HDEL', INFLIGHT, '')
else
  finish('completed', settled)
  redis.call('HDEL', INFLIGHT, unpack(settled))
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
