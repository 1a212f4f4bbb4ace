-- A step of enqueue.lua: handles a new job of a group that is ready at once. judge_other would find the same outcome.
local class, envelope = classes[j], args[fixed + 4 * j]
if #envelope + #group + 3 > longest then
  longest = #envelope + #group + 3
end
place = place >= now and place + 1 or now
-- The places of a call mostly differ in the last byte and the last digit alone.
local low, last = place % 256, place % 10
if place - low ~= stamped then
  stamped, stamp_head = place - low, sub(stamp(place), 1, 7)
end
if place - last ~= rounded then
  rounded, place_head = place - last, '\1' .. string.format('%015.0f', math.floor(place / 10))
end
ends[low] = ends[low] or string.char(low)
lengths[#group] = lengths[#group] or string.char(0, #group + 1, #group)
records[2 * fresh + 1], records[2 * fresh + 2] = id, '\1' .. class .. grouped_head .. stamp_head .. ends[low] .. lengths[#group] .. group .. envelope
fresh, seen[id] = fresh + 1, '0'
local k = lined.n + 1
lined.n, lined.keys[k], lined.classes[k] = k, group, class
lined.members[k] = class .. group .. place_head .. ones[last] .. id
outcomes[j] = '1'
