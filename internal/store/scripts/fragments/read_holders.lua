-- A step of enqueue.lua: finds out where the jobs are that have unique keys of the call: their states, as outcomes have them, or 'g' of one that is gone.
-- moving has those that are being moved to another queue.
holders, moving = {}, {}
local others = {}
for _, value in pairs(keys_held) do
  local other = string.match(value, ' (.+)$')
  if other and not holders[other] then
    holders[other] = redis.call('HEXISTS', JOBS, other) == 1 and '0' or 'g'
    if holders[other] == '0' then
      others[#others + 1] = other
    end
  end
end
if #others > 0 then
  if not terminal then
    -- include: terminal_states
  end
  for _, state in pairs(terminal) do
    if redis.call('ZCARD', state.set) > 0 then
      for i, score in ipairs(redis.call('ZMSCORE', state.set, unpack(others))) do
        holders[others[i]] = score and state.met or holders[others[i]]
      end
    end
  end
  for _, class in ipairs({'1', '0', '2', 'b', 'a', 'c', 's'}) do
    local left, members = {}, {}
    for _, other in ipairs(others) do
      if holders[other] == '0' then
        left[#left + 1], members[#members + 1] = other, class .. other
      end
    end
    if #left == 0 or redis.call('ZCARD', DUE) == 0 then
      break
    end
    for i, score in ipairs(redis.call('ZMSCORE', DUE, unpack(members))) do
      if score then
        holders[left[i]], moving[left[i]] = 's', tonumber(score) > 9007199254740991 -- see put.lua
      end
    end
  end
end
