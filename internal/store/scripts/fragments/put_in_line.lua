-- A step of enqueue.lua: puts jobs of groups into their lines.
if lined.n > 0 then
  -- include: lines
  local g = lines()
  g.load(lined.keys, true)
  woken = g.join(lined.members, lined.keys, lined.classes) and held_back == '' or woken
  g.save()
  redis.call('HSET', STATS, 'place', digits(place))
end
