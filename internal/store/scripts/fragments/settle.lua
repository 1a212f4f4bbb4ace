-- include: owns, finish, settle_others

-- Part of claim.lua. Settles the deliveries of the call, and keeps the marks of those that run on or will run again.
local function settle()
  local ids, n = {}, 0
  for j = 1, completed do
    local i = fixed - 1 + 2 * j
    local token = ARGV[i + 1]
    if held[j] == token or owns(j, token) then
      n = n + 1
      ids[n] = ARGV[i]
    else
      refused[#refused + 1] = j
    end
  end
  -- The first write is one that Redis permits when it is out of memory, and with it all that
  -- follows.
  if n == 0 then
    redis.call('HDEL', INFLIGHT, '')
  else
    finish('completed', ids)
    redis.call('HDEL', INFLIGHT, unpack(ids))
  end
  local spans, j = {}, #held - marks
  for i = first_mark, others - 1, 3 do
    j = j + 1
    if owns(j, ARGV[i + 1]) then
      spans[#spans + 1] = ARGV[i]
      spans[#spans + 1] = ARGV[i + 1] .. ' ' .. ARGV[i + 2]
    end
  end
  if #spans > 0 then
    redis.call('HSET', SPANS, unpack(spans))
  end
  if others <= #ARGV then
    settle_others(ids)
  end
end
