-- Returns what the queue's settings say to a call of a protocol: '' if it may add and take jobs, 'paused' if none are to be
-- taken, or the queue's layout if that is newer than the protocol. Then the call may only settle what was taken before.
local function standing(settings, protocol)
  local layout, paused = unpack(redis.call('HMGET', settings, 'layout', 'paused'))
  if layout and not string.find(layout, '^%d%d?%d?$') then
    layout = '999' -- whoever wrote it knows more than this call
  end
  if layout and tonumber(layout) > tonumber(protocol) then
    return layout
  end
  return paused and 'paused' or ''
end
