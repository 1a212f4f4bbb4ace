-- Returns what the queue's settings allow to a call of a protocol; how many slots each worker should have ('' if that isn't set); and to a caller that is
-- no worker how many jobs the queue may have that haven't ended (nil if there is no maximum).
-- The first is one of:
--   '': the call may add and take jobs
--   'paused': nobody may take jobs
--   'quiet': this worker may not take jobs
--   'stop': this worker may not take jobs, and is to end
--   the queue's layout, if it is newer than the protocol: the call may only settle jobs that were taken before
-- worker is nil if the caller is no worker.
local function standing(settings, protocol, worker)
  local layout, paused, slots, own = unpack(redis.call('HMGET', settings, 'layout', 'paused', 'slots', worker and 'quiet:' .. worker or 'max_length'))
  if layout and not string.find(layout, '^%d%d?%d?$') then
    layout = '999' -- another program wrote it, which knows more than this call
  end
  if layout and tonumber(layout) > tonumber(protocol) then
    return layout, ''
  end
  if not worker then
    return paused and 'paused' or '', slots or '', own and tonumber((string.match(own, '^[1-9]%d*$'))) or nil
  end
  return own and string.sub(own, 1, 4) == 'stop' and 'stop' or paused and 'paused' or own and 'quiet' or '', slots or ''
end
