-- A step of put.lua: a new job that hasn't ended takes its unique key, unless it had that until it started.
local taken, scope, key = key_taken(id, record)
if scope and scope ~= 'S' then
  if taken then
    answer = 'unique'
  elseif dry ~= '1' then
    redis.call('HSET', UNIQUE, key, scope .. ' ' .. id)
  end
end
