-- A step of claim.lua: grants a token to each id that was drawn. Skips ids without a record and ids that are in flight.
local records = redis.call('HMGET', JOBS, unpack(popped))
local busy = redis.call('HMGET', INFLIGHT, unpack(popped))
local grants, seen, n = {}, {}, 0
if g and g.bounded then
  -- include: pay_rates
end
first = math.max(fence + 1, now)
for i = 1, #popped do
  local id = popped[i]
  local there = records[i] and not busy[i] and not seen[id]
  local mark = g and there and string.byte(records[i], 4) or 0 -- the flags of the record: 1 for a group, 4 for a unique key, 8 for a job that expires
  if mark % 16 >= 8 then
    -- include: grant_expiring
  end
  if g and from[i] then
    -- include: grant_lined
  end
  if there then
    seen[id] = true
    grants[2 * n + 1] = id
    grants[2 * n + 2] = flags[i] and digits(first + n) .. flags[i] or digits(first + n)
    if mark % 2 == 1 or from[i] then
      -- include: grant_group
    end
    if u and mark % 8 >= 4 then
      -- include: grant_unique
    end
    n = n + 1
    ids[n], bodies[n] = id, records[i]
    if #records[i] > grown then
      grown = #records[i]
    end
  end
end
if n > 0 then
  -- Redis searches a small hash from end to end, which is slow. It keeps a hash out of that form once the hash has held a value of more
  -- than 64 bytes beside others. So a batch of 16 or more adds such a value and removes it.
  if n >= 16 then
    grants[2 * n + 1], grants[2 * n + 2] = '', string.rep('-', 65)
  end
  redis.call('HSET', INFLIGHT, unpack(grants))
  if n >= 16 then
    redis.call('HDEL', INFLIGHT, '')
  end
  redis.call('SET', FENCE, digits(first + n - 1))
  if u and #u.keys > 0 then
    -- include: free_keys
    redis.call('HSET', JOBS, unpack(u.begun))
    free_keys(u.keys, u.ids)
  end
  if u and u.throttled then
    -- include: begin_windows
  end
end
