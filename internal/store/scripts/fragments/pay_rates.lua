-- include: group_of, class_of, redue, line_of

-- A step of claim.lua: jobs that hold their groups already, as they run again, count for the limits of those groups, too. If more jobs hold a group than
-- may, since its limit was lowered, one that the others leave no room for goes back to its line, to the place that it had, and holds the group no
-- more. So does one that the group's rate doesn't allow yet. One of a serial group holds it on, and is put off until the rate allows it. A serial group has one holder, so its limit says nothing here.
-- None runs while its group is paused: as many may hold it then as for a limit of 0, and one of a serial group is put off.
local owners, keys, holders = {}, {}, {} -- holders: by key, how many of the jobs that were drawn hold the group
for i = 1, #popped do
  if records[i] and not from[i] and not busy[i] then
    local key = group_of(records[i])
    owners[i] = key
    if key then
      keys[#keys + 1] = key
      holders[key] = (holders[key] or 0) + 1
    end
  end
end
if #keys > 0 then
  g.load(keys)
end
for i = 1, #popped do
  local key = not seen[popped[i]] and owners[i] or nil
  local s = key and g.of(key)
  if key and s.paused and string.byte(key) == 115 then
    -- include: await_resume
  elseif key then
    local pause = 0
    -- Of the holders those stay that come first, as many as the others leave room for.
    if s.held > s.most and string.byte(key) == 103 then
      s.keeps = s.keeps or math.max(s.most - (s.held - holders[key]), 0)
      if s.keeps > 0 then
        s.keeps = s.keeps - 1
      else
        pause = -1
      end
    end
    if pause == 0 then
      pause = g.again(key, steady)
    end
    seen[popped[i]] = pause ~= 0 -- an ID that stands twice in a list is dealt with once
    if pause ~= 0 then
      if string.byte(key) == 115 then
        -- include: await_rate
      else
        local class, member = string.sub(records[i], 2, 2), line_of(records[i], key, popped[i])
        g.leave({key})
        if pause > 0 and g.state(key, class) == '.' then
          g.set(key, class, 'w')
          redis.call('ZADD', LINED, '0', member)
          redis.call('ZADD', PARKED, digits(steady + pause), class .. key)
        else
          g.join({member})
        end
      end
      records[i] = false
    end
  end
end
