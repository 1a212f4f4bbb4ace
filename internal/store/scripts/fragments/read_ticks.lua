-- Part of enqueue.lua. Reads the last tick of each cron entry of the call. Returns nil, or what is wrong with one.
local function read_ticks()
  local found = redis.call('HMGET', CRON, unpack(entries))
  for i = 1, #entries do
    local mark = found[i] and tonumber(found[i])
    if found[i] and not mark then
      return 'the last tick of a cron entry is no number: is another program writing to this queue?'
    end
    marks[entries[i]] = mark or -1
  end
end
