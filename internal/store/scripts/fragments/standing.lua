-- Returns what the queue's settings allow to a call of a protocol, and how many slots each worker should have ('' if that isn't set).
-- The first is one of:
--   '': the call may add and take jobs
--   'paused': nobody may take jobs
--   'quiet': this worker may not take jobs
--   'stop': this worker may not take jobs, and is to end
--   the queue's layout, if it is newer than the protocol: the call may only settle jobs that were taken before
-- worker is nil if the caller is no worker.
local function standing(settings, protocol, worker)
  local layout, paused, slots, quiet = unpack(redis.call('HMGET', settings, 'layout', 'paused', 'slots', 'quiet:' .. (worker or '')))
  if layout and not string.find(layout, '^%d%d?%d?$') then
    layout = '999' -- another program wrote it, which knows more than this call
  end
  if layout and tonumber(layout) > tonumber(protocol) then
    return layout, ''
  end
  return quiet and string.sub(quiet, 1, 4) == 'stop' and 'stop' or paused and 'paused' or quiet and 'quiet' or '', slots or ''
end
