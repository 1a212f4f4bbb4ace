-- A step of enqueue.lua: reads the arguments that a plain job doesn't have. If they aren't valid, it sets class to nil.
local mark, other, star, most, extras, serial
if string.byte(class, 2) == 43 then -- '+': that is quicker, and most have no marks
  mark, other, star, most, extras = '', '', '', '', string.sub(class, 2)
  class = string.sub(class, 1, 1)
  class = ready_now[class] and class
else
  class, mark, other, star, most, extras = string.match(class, '^([012])(!?)(~?)(%*?)(%d*)(.*)$')
end
detail.cautious, detail.version, detail.replaces, detail.most = mark == '!', other == '~' and '\2', star == '*', tonumber(most)
if class and most ~= '' and (star == '' or #most > 16) then
  class = nil
end
if class and extras ~= '' then
  detail.extras = extras
  local plus, flags, size = string.byte(extras, 1, 3)
  if plus ~= 43 or not flags or flags == 0 or #extras > 1002 then
    class = nil
  elseif flags % 2 == 1 then
    size = size or 0
    detail.group = string.sub(extras, 4, 3 + size)
    serial = string.sub(detail.group, 1, 1) == 's'
    lined = lined or {n = 0, members = {}, keys = {}, classes = {}, known = {}}
    detail.expires = flags % 16 >= 8
    if not lined.known[detail.group] then
      if #detail.group < size or size > 201 or not string.find(detail.group, '^[sg][!-z|~]+$') and not (detail.expires and detail.group == 'g{}') then
        class = nil
      end
      lined.known[detail.group] = class -- nil if it isn't valid
    end
  elseif flags % 16 >= 8 then
    class = nil -- a job that expires waits in a line
  end
  if class and flags % 8 >= 4 then
    detail.scope, detail.unique, detail.window = unique_part(flags, extras, 3, #extras)
    uniques = uniques or {}
    uniques[#uniques + 1] = detail.unique
    timed = timed or detail.scope == 't'
    if not detail.unique or detail.scope == 'S' or #detail.unique > 402 then
      class = nil
    end
  end
end
if when ~= '' then
  timed = true
  local sign, us, entry = string.match(when, '^([+@=])(%d+)(.*)$')
  if sign == '=' then
    local name, plan, late, overlap = string.match(entry, '^ ([!-z|~]+) ?(%x*) ?(%d*) ?([sqc]?)$')
    detail.entry, detail.plan, detail.bound = name, plan ~= '' and plan, tonumber(late)
    if overlap and overlap ~= '' then
      detail.overlap, overlaps = overlap, true
    end
    if not name or #name > 200 or (plan == '') ~= (late == '') or detail.overlap and plan == '' or overlap == 'q' and not serial or detail.unique then
      us = nil
    else
      entries = entries or {}
      entries[#entries + 1] = detail.entry
    end
  elseif not sign then
    -- include: read_run
  elseif entry ~= '' then
    us = nil
  end
  detail.us, detail.delayed = tonumber(us), sign == '+'
  if not detail.us then
    class = nil
  end
end
