-- A step of claim.lua: reads what the session's hash has about the deliveries in the call. These are first the ones that completed,
-- then the others that the call settles, then those with notes.
local held = {}
if #ARGV > fixed then
  local about, n = {}, 0
  for i = fixed + 1, first_note - 1, 2 do
    n = n + 1
    about[n] = ARGV[i]
  end
  for i = others, #ARGV, 6 do
    n = n + 1
    about[n] = ARGV[i]
  end
  for i = first_note, others - 1, 3 do
    n = n + 1
    about[n] = ARGV[i]
  end
  held = redis.call('HMGET', INFLIGHT, unpack(about))
else
  redis.call('HLEN', INFLIGHT)
end
