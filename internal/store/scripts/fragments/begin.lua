-- Sets the layout of a queue whose settings have none: the first thing that a call writes to it. begins is what standing says. The layout is the oldest that
-- standing knows, not the caller's protocol: older programs may use the queue until something is used that they don't know. STATS has the layout, too: so a
-- queue whose settings were deleted or evicted isn't taken for one that an older program has used.
local function begin(settings, stats, begins)
  if begins then
    redis.call('HSET', settings, 'layout', '3')
    redis.call('HSET', stats, 'layout', '3')
  end
end
