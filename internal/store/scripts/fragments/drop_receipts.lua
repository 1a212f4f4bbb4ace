-- include: digits

-- Drops receipts of moves that are older than 30 days, at most most of them. Returns how many.
local function drop_receipts(now, most)
  local old = redis.call('ZRANGE', RECEIPTS, '-inf', digits(math.max(now - 2592000000000, 0)), 'BYSCORE', 'LIMIT', 0, most)
  if #old > 0 then
    redis.call('ZREM', RECEIPTS, unpack(old))
  end
  return #old
end
