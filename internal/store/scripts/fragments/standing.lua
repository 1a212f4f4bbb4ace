-- Returns what the queue's settings say to a call of a protocol: '' if it may add and take jobs, 'paused' if nobody is to take
-- any, 'quiet' if this worker isn't to, or the queue's layout if that is newer than the protocol. Then the call may only settle
-- what was taken before. Also returns how many slots each worker is to have, '' if that isn't set. The caller may be no worker.
local function standing(settings, protocol, worker)
  local layout, paused, slots, quiet = unpack(redis.call('HMGET', settings, 'layout', 'paused', 'slots', 'quiet:' .. (worker or '')))
  if layout and not string.find(layout, '^%d%d?%d?$') then
    layout = '999' -- whoever wrote it knows more than this call
  end
  if layout and tonumber(layout) > tonumber(protocol) then
    return layout, ''
  end
  return paused and 'paused' or quiet and 'quiet' or '', slots or ''
end
