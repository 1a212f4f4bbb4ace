-- Sets the layout of a queue that has none yet: the first thing that a call writes to it. begins is what standing says. The layout is the oldest that
-- standing knows, not the caller's protocol: older programs may use the queue until something is used that they don't know.
local function begin(settings, begins)
  if begins then
    redis.call('HSET', settings, 'layout', '3')
  end
end
