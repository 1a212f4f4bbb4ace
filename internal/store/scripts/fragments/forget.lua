-- include: count

-- Removes an id from a terminal state, and its bytes from the state's counter. Returns how many bytes are left.
local function forget(state, id, bytes)
  redis.call('ZREM', state.set, id)
  return count(STATS, state.bytes, 0 - bytes) -- of 0 bytes -bytes is "-0", which is no integer
end
