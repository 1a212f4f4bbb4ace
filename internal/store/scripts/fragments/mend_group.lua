-- include: line_facts

-- A step of mend.lua: gives the lines of the group a the states and the turns that their jobs need. If b isn't '', it is two numbers: that of the
-- jobs that were said to hold the group, and that of those that do. did: it is so still, or so already.
g = g or lines()
g.load({a})
local held = g.held(a)
local said, right = string.match(b, '^(%d+) (%d+)$')
said, right = tonumber(said), tonumber(right)
did = not said or held == said or held == right
if did and said and held == said then
  g.hold(a, math.max(right - said, 0))
  for _ = right + 1, said do
    g.leave({a})
  end
end
if did then
  local turns = {}
  for class = 0, 2 do
    local line = class .. a
    local waits, score, parked = line_facts(line)
    local rests = parked and g.state(a, class) == 'w' -- the group's rate allows no job yet
    local turn = score and math.floor(tonumber(score) / 1125899906842624) == class
    if score and (rests or not (turn and waits and g.room(a) > 0)) then
      redis.call('ZREM', TURNS, line)
      turn = false
    end
    if not waits then
      g.set(a, tostring(class), '.')
    elseif rests then
      g.set(a, tostring(class), 'w')
    elseif g.room(a) <= 0 then
      g.set(a, tostring(class), 'b')
    elseif turn then
      g.set(a, tostring(class), 't')
    else
      g.turn(a, tostring(class), turns)
    end
  end
  if #turns > 0 then
    redis.call('ZADD', TURNS, unpack(turns))
    woken = woken or held_back == ''
  end
end
