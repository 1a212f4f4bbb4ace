-- A step of enqueue.lua: reads and checks the arguments of all n jobs.
local ids, classes, times, delays, ticks, cautious, extras = {}, {}, {}, {}, {}, {}, {}
local entries, timed -- cron entries, if there are ticks; whether any job has a time
for j = 1, n do
  local i = fixed + 4 * j - 3
  local id, class, when = args[i], args[i + 1], args[i + 2]
  if not ready_now[class] then
    local mark, special
    class, mark, special = string.match(class, '^([012])(!?)(.*)$')
    cautious[j] = mark == '!'
    if class and special ~= '' then
      if #special < 2 or #special > 1002 or not string.find(special, '^%+[\1-\255]') then
        class = nil
      else
        extras[j] = special
      end
    end
  end
  if when ~= '' then
    timed = true
    local sign, us, entry = string.match(when, '^([+@=])(%d+)(.*)$')
    if sign == '=' then
      entry = string.match(entry, '^ ([!-z|~]+)$')
      if not entry or #entry > 200 then
        us = nil
      else
        ticks[j] = entry
        entries = entries or {}
        entries[#entries + 1] = entry
      end
    elseif entry ~= '' then
      us = nil
    end
    times[j], delays[j] = tonumber(us), sign == '+'
  end
  if id == '' or #id > 200 or not class or (when ~= '' and not times[j]) then
    return invalid('the id, the class or the time of job ' .. j .. ' is not valid')
  end
  ids[j], classes[j] = id, class
end
if not string.find(table.concat(ids), '^[!-z|~]+$') then
  return invalid('an id has other characters than printable ASCII without spaces and braces')
end
