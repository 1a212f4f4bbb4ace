-- What a queue's settings say to each call.

-- Returns what the queue's settings allow to a call of a protocol; how many slots each worker should have ('' if that isn't set); and to a worker the
-- limits of the queue and of its groups, and how many jobs it may have that haven't ended, as the settings have them; to another caller only that
-- number (nil if there is none). Last, whether the settings have no layout: the call that first writes to the queue sets it, see begin.
-- The first is one of:
--   '': the call may add and take jobs
--   'paused': nobody may take jobs
--   'quiet': this worker may not take jobs
--   'stop': this worker may not take jobs, and is to end
--   the queue's layout, if it is newer than the protocol, or older than 3: the call may only settle jobs that were taken before. A queue that was used
--   but has no layout in settings or stats has layout 1: a program from before the first release used it
-- worker is nil if the caller is no worker.
local function standing(settings, stats, protocol, worker)
  local layout, paused, slots, most, own, of_queue, of_groups = unpack(redis.call('HMGET', settings, 'layout', 'paused', 'slots', 'max_length',
    worker and 'quiet:' .. worker or '', worker and 'limits' or '', worker and 'group_limits' or ''))
  local begins = not layout
  if begins and redis.call('EXISTS', settings, stats) > 0 then
    layout = redis.call('HGET', stats, 'layout') or '1'
  end
  if layout and layout ~= protocol then
    -- A text that is no number was written by another program, which knows more than this call.
    local number = string.find(layout, '^%d%d?%d?$') and tonumber(layout) or 999
    if number < 3 or number > tonumber(protocol) then
      return string.format('%d', math.max(number, 1)), ''
    end
  end
  if not worker then
    return paused and 'paused' or '', slots or '', most and tonumber((string.match(most, '^[1-9]%d*$'))) or nil, begins
  end
  return own and string.sub(own, 1, 4) == 'stop' and 'stop' or paused and 'paused' or own and 'quiet' or '', slots or '', of_queue, of_groups, most, begins
end

-- Sets the layout of a queue whose settings have none: the first thing that a call writes to it. begins is what standing says. The layout is the oldest that
-- standing knows, not the caller's protocol: older programs may use the queue until something is used that they don't know. STATS has the layout, too: so a
-- queue whose settings were deleted or evicted isn't taken for one that an older program has used.
local function begin(settings, stats, begins)
  if begins then
    redis.call('HSET', settings, 'layout', '3')
    redis.call('HSET', stats, 'layout', '3')
  end
end
