-- A step of enqueue.lua: reads and checks the arguments of all n jobs. details has the arguments that a plain job doesn't have.
local ids, classes, details = {}, {}, {}
local entries, timed -- entries: the cron entries of ticks; timed: whether any job has a time
local overlaps -- whether any of these entries has a policy for jobs that overlap
local keyed, grouped -- of jobs without details: the unique key, or that of the group; nil if no job has one
-- include: unique_part
for j = 1, n do
  local i = fixed + 4 * j - 3
  local id, class, when = args[i], args[i + 1], args[i + 2]
  if not ready_now[class] or when ~= '' then
    -- include: read_common
    if common then
      class = common
    else
      local detail = { -- with all fields, so that Lua makes room for them once
        cautious = false, version = false, replaces = false, most = false, extras = false, group = false, expires = false, scope = false, unique = false,
        window = false, us = false, delayed = false,
      }
      -- include: read_detail
      details[j] = detail
    end
  end
  if id == '' or #id > 200 or not class then
    return invalid('the id, the class or the time of job ' .. j .. ' is not valid')
  end
  ids[j], classes[j] = id, class
end
if not string.find(table.concat(ids), '^[!-z|~]+$') then
  return invalid('an id has other characters than printable ASCII without spaces and braces')
end
