-- A step of enqueue.lua: finds the outcome for a tick. It is '1' if nobody enqueued the tick before. Then the tick becomes the last one
-- of its entry.
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
end
