-- Part of claim.lua. Returns what the session holds of the deliveries that the call is about: of those that completed, then
-- of the others that it settles, then of those with marks.
local function tokens_held()
  local ids, n = {}, 0
  for i = fixed + 1, first_mark - 1, 2 do
    n = n + 1
    ids[n] = ARGV[i]
  end
  for i = others, #ARGV, 6 do
    n = n + 1
    ids[n] = ARGV[i]
  end
  for i = first_mark, others - 1, 3 do
    n = n + 1
    ids[n] = ARGV[i]
  end
  if n == 0 then
    redis.call('HLEN', INFLIGHT)
    return {}
  end
  return redis.call('HMGET', INFLIGHT, unpack(ids))
end
