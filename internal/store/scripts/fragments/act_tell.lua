-- A step of act.lua: tells workers which of their jobs were cancelled.
for k, deliveries in pairs(told) do
  local channel = channels .. string.sub(KEYS[k], #inflight + 1)
  local message = 'cancel ' .. table.concat(deliveries, ' ')
  if (send('s' .. channel, message) or 0) == 0 then
    send('p' .. channel, message)
  end
end
