-- A step of act.lua: marks a job that runs as cancelled. A mark that is there stays. Its worker is told of it either way.
local k = place
if not is_marked(held) then
  local token, flags, rest = string.match(held, '^(%d+) ?(%w*)(.*)$')
  redis.call('HSET', KEYS[k], id, (token or '0') .. ' ' .. (flags or '') .. 'c' .. (rest or ''))
  redis.call('HSET', CANCELS, id, (token or '0') .. ' ' .. mark)
end
told[k] = told[k] or {}
table.insert(told[k], id .. ' ' .. string.match(held, '^%d*'))
