-- Messages to workers and producers, and when there is work again.

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

-- Returns how many jobs count for the queue's maximum: all that haven't ended.
local function queue_length()
  return redis.call('HLEN', JOBS) - redis.call('ZCARD', DEAD) - redis.call('ZCARD', CANCELLED) - redis.call('ZCARD', COMPLETED)
end

-- Returns the queue's maximum, if there is one, when it has as many jobs or more: then it is full. Else returns nil.
local function full_at(maximum)
  return maximum and queue_length() >= maximum and maximum or nil
end

-- Tells the producers that wait for room if there is some now. full is what full_at returned before: a call that ends jobs or deletes them calls this at its end.
local function tell_room(full)
  if full and queue_length() < full then
    send(string.format('p%s', SETTINGS), 'room') -- a channel with the name of the key
  end
end

-- Wakes the session that has been idle for longest, except the one with the address except. Sends it a message and removes its address
-- from the idle sessions. Its worker may not act on it, for example because its process stands still. So the session that has
-- been idle for the shortest time gets a message as well: to look for work a little later. An address without a listener is removed.
-- longest is the two that have been idle for longest, of a caller that has read them.
local function wake_one(idle, except, longest)
  for _ = 1, 1000 do
    local first, second = unpack(longest or redis.call('ZRANGE', idle, '0', '1'))
    longest = nil
    local address = first == except and second or first
    if not address or address == except then
      return
    end
    local got = send(address, 'work')
    if not got then
      return -- the user lacks a right; workers find out when they renew their sessions
    end
    redis.call('ZREM', idle, address)
    if got > 0 then
      if second then
        local other, last = unpack(redis.call('ZRANGE', idle, -2, -1))
        last = last or other
        if last == except then
          last = other
        end
        if last ~= except then
          send(last, 'standby')
        end
      end
      return
    end
  end
end
