-- A step of claim.lua for a repeated call whose first reply was lost: finds the call's jobs by their tokens.
first = tonumber(lfirst)
local last = tonumber(llast)
if first <= last then
  local entries = redis.call('HGETALL', INFLIGHT)
  local at = {}
  for i = 1, #entries, 2 do
    local token = tonumber(string.match(entries[i + 1], '^%d+') or 'none')
    if token and token >= first and token <= last then
      at[token] = entries[i]
    end
  end
  for token = first, last do
    ids[#ids + 1] = at[token] or ''
    bodies[#bodies + 1] = at[token] and redis.call('HGET', JOBS, at[token]) or false
  end
end
