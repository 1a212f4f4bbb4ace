-- Returns what the counters of stats say, as a text: the numbers in the order of Totals in counts.go, with spaces between. A counter that
-- holds no such number counts as 0. If stats can't be read, returns nil and the error.
local function totals_of(stats)
  local totals = redis.pcall('HMGET', stats, 'enqueued', 'completed', 'retry', 'delay', 'return', 'dead', 'cancelled', 'crashed',
    'deleted', 'revived', 'expired')
  if totals.err then
    return nil, totals
  end
  for i = 1, 11 do
    local n = totals[i]
    if not n or #n > 16 or not string.find(n, '^%d+$') then
      totals[i] = '0'
    end
  end
  return table.concat(totals, ' ')
end
