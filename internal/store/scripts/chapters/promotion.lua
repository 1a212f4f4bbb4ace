-- Jobs whose time has come.

-- Makes jobs ready whose time has come: those with these members of DUE.
local function promote(promotable, ready)
  local moved = {}
  for _, member in ipairs(promotable) do
    local class = string.sub(member, 1, 1)
    moved[class] = moved[class] or {}
    table.insert(moved[class], string.sub(member, 2))
  end
  for class, ids in pairs(moved) do
    enter(ready, class, ids, false)
  end
  if #promotable > 0 then
    redis.call('ZREM', DUE, unpack(promotable))
  end
end

-- Puts the jobs among members of DUE that come into their groups' lines there. Returns the other members. A job stays due if its
-- record would be too much to read in this call.
local function promote_lined(promotable, g)
  local others, done, members, keys, bytes = {}, {}, {}, {}, 0
  for _, member in ipairs(promotable) do
    local id = string.sub(member, 2)
    if not is_later(member) then
      others[#others + 1] = member
    elseif bytes <= 2097152 then
      bytes = bytes + redis.call('HSTRLEN', JOBS, id)
      local record = (bytes <= 2097152 or #done == 0) and redis.call('HGET', JOBS, id)
      local key = record and group_of(record)
      if key then
        keys[#keys + 1] = key
        members[#members + 1] = line_of(record, key, id)
      end
      if record or bytes <= 2097152 then
        done[#done + 1] = member
      end
    end
  end
  if #members > 0 then
    g.load(keys)
    g.join(members)
  end
  if #done > 0 then
    redis.call('ZREM', DUE, unpack(done))
  end
  return others
end
