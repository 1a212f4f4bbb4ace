-- include: queue_length, send

-- Tells the producers that wait for room if there is some now. A call that ends jobs or deletes them does so at its end if there was none before.
local function tell_room(maximum)
  if queue_length() < maximum then
    send(string.format('p%s', SETTINGS), 'room') -- a channel with the name of the key
  end
end
