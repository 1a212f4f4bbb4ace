-- A step of enqueue.lua: finds the outcome for a tick. '1' is for one that nobody enqueued before: it is its entry's last from
-- then on.
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
