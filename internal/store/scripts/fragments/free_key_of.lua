-- include: unique_of, free_keys

-- Frees the unique key of a job that ends, with this record. If windows is true, its window ends as well.
local function free_key_of(id, record, windows)
  local scope, key = unique_of(record)
  if scope == 'w' or scope == 't' then
    local till, holder = string.match(redis.call('HGET', UNIQUE, key) or '', '^(%w+) (.+)$')
    if holder == id and (windows or till == 't') then
      redis.call('HDEL', UNIQUE, key)
      redis.call('ZREM', WINDOWS, key)
    end
  elseif scope then
    free_keys({key}, {id})
  end
end
