-- Returns whether jobs wait in a line, class and key, the score of its turn, and the time at which it gets one. Each score is nil if there is none.
local function line_facts(line)
  local first = redis.call('ZRANGE', LINED, '[' .. line .. '\1', '(' .. line .. '\2', 'BYLEX', 'LIMIT', 0, 1)
  return #first > 0, redis.call('ZSCORE', TURNS, line) or nil, redis.call('ZSCORE', PARKED, line) or nil
end
