-- include: count

-- Takes an id out of a terminal state, and its bytes out of their counter. Returns how many bytes are left.
local function forget(state, id, bytes)
  redis.call('ZREM', state.set, id)
  return count(STATS, state.bytes, -bytes)
end
