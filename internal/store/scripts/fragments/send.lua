-- Sends a message to an address: 'p' and a channel, or 's' and a sharded channel of a Redis Cluster. Returns the number of connections
-- that received it, or nil if the user may not send it.
local function send(address, message)
  local channel, got = string.sub(address, 2), nil
  if string.sub(address, 1, 1) == 's' then
    got = redis.pcall('SPUBLISH', channel, message)
  else
    got = redis.pcall('PUBLISH', channel, message)
  end
  return type(got) == 'number' and got or nil
end
