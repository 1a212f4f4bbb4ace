-- The jobs of groups that a call puts in and that are ready at once.

-- Reads where the lines are. Returns what the functions below are given:
--   members, keys, classes: of each of these jobs the member of LINED, the key of its group, and its class
--   place: the last one in the lines that was given
--   bytes, ones, lengths: by number, the byte, the digit, and what stands in front of a key of that length in a record
local function lines_of_call()
  redis.call('ZCARD', LINED)
  redis.call('ZCARD', TURNS)
  redis.call('HLEN', GROUPS)
  redis.call('ZCARD', EXPIRES) -- a job that expires has a group
  local place = tonumber((string.match(redis.call('HGET', STATS, 'place') or '', '^%d+$'))) or 0
  return {
    members = {}, keys = {}, classes = {}, place = place,
    bytes = {}, ones = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}, lengths = {},
  }
end

-- Puts in new jobs of groups that are ready at once, from job j on. Returns the number of the first one that isn't such. judge_other would do the same.
local function take_in_groups(lines, request, found, intake, j)
  local args, ids, classes, details, groups, present, room = request.args, request.ids, request.classes, request.details, request.keys, found.present, found.room
  local outcomes, records, seen, now, fresh, longest = intake.outcomes, intake.records, intake.seen, intake.now, intake.fresh, intake.longest
  local members, keys, place, bytes, ones, lengths = lines.members, lines.keys, lines.place, lines.bytes, lines.ones, lines.lengths
  local head = '\0\1' .. intake.at -- of a record: what follows the class
  local stamped, stamp_head, rounded, place_head -- see below
  local n, k = #ids, #members
  while j <= n do
    local id = ids[j]
    if details[j] ~= 'g' or fresh >= room or present[j] or seen[id] then
      break
    end
    local class, group, envelope = classes[j], groups[j], args[4 * j + 1]
    if #envelope + #group + 3 > longest then
      longest = #envelope + #group + 3
    end
    place = place >= now and place + 1 or now
    -- The places of a call mostly differ in the last byte and the last digit alone.
    local low, last = place % 256, place % 10
    if place - low ~= stamped then
      stamped, stamp_head = place - low, string.sub(eight_bytes(place), 1, 7)
    end
    if place - last ~= rounded then
      rounded, place_head = place - last, '\1' .. string.format('%015.0f', math.floor(place / 10))
    end
    bytes[low] = bytes[low] or string.char(low)
    lengths[#group] = lengths[#group] or string.char(0, #group + 1, #group)
    records[2 * fresh + 1], records[2 * fresh + 2] = id, '\1' .. class .. head .. stamp_head .. bytes[low] .. lengths[#group] .. group .. envelope
    fresh, k, seen[id] = fresh + 1, k + 1, '0'
    keys[k], lines.classes[k], members[k] = group, class, class .. group .. place_head .. ones[last] .. id
    outcomes[j] = '1'
    j = j + 1
  end
  intake.fresh, intake.longest, lines.place = fresh, longest, place
  return j
end

-- Writes the jobs. Returns whether any of them may be drawn.
local function put_lines(lines)
  local g = lines_of_groups()
  g.load(lines.keys, true)
  local any = g.join(lines.members, lines.keys, lines.classes)
  g.save()
  redis.call('HSET', STATS, 'place', digits(lines.place))
  return any
end
