-- Frees unique keys whose scope has ended: keys[i] if the job ids[i] has it.
local function free_keys(keys, ids)
  local values, gone = redis.call('HMGET', UNIQUE, unpack(keys)), {}
  for i = 1, #keys do
    if values[i] and string.match(values[i], '^[set] (.+)$') == ids[i] then
      gone[#gone + 1] = keys[i]
    end
  end
  if #gone > 0 then
    redis.call('HDEL', UNIQUE, unpack(gone))
  end
end
