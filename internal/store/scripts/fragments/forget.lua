-- include: count

-- Removes an id from a terminal state, and its bytes from the state's counter. Returns how many bytes are left.
local function forget(state, id, bytes)
  redis.call('ZREM', state.set, id)
  return count(STATS, state.bytes, -bytes)
end
