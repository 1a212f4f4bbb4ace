-- A step of enqueue.lua: finds the outcome for a tick. It is '1' if nobody enqueued the tick before, or 'p' if its entry is paused. Then
-- the tick becomes the last one of its entry.
ahead = reckons and marks[entry] > reckoned + 10000000
if us > reckoned then
  outcome = 'e'
elseif us <= marks[entry] and not ahead then
  outcome = 't'
elseif us < reckoned - 5000000 then
  outcome = 'l'
else
  marks[entry] = us
  marked = marked or {}
  marked[#marked + 1] = entry
  marked[#marked + 1] = digits(us)
  if paused[entry] then
    outcome = 'p'
  end
end
