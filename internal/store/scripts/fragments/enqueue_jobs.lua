-- A step of enqueue.lua and relay.lua: puts in the jobs whose outcomes say so. Sets anew if they are the first jobs of the queue.
local pushes, anew = 0, false
for class, list in pairs(ready_now) do
  if #list > 0 then
    pushes = pushes + 1
    if pushes > 1 then -- the first one is the first write
      redis.call('LLEN', lists[class])
    end
  end
end
if replaced then
  redis.call('HLEN', NOTES)
end
-- include: begin
begin(SETTINGS, STATS, begins and (fresh > 0 or marked))
if fresh > 0 then
  -- include: put_in
end
if updated then
  -- include: update_waiting
end
if marked then
  redis.call('HSET', CRON, unpack(marked))
end
