-- A step of enqueue.lua: reads the arguments that a plain job doesn't have. If they aren't valid, it sets class to nil.
local mark, extras
class, mark, extras = string.match(class, '^([012])(!?)(.*)$')
detail.cautious = mark == '!'
if class and extras ~= '' then
  detail.extras = extras
  if #extras < 2 or #extras > 1002 or not string.find(extras, '^%+[\1-\255]') then
    class = nil
  end
end
if when ~= '' then
  timed = true
  local sign, us, entry = string.match(when, '^([+@=])(%d+)(.*)$')
  if sign == '=' then
    local name, plan, late = string.match(entry, '^ ([!-z|~]+) ?(%x*) ?(%d*)$')
    detail.entry, detail.plan, detail.bound = name, plan ~= '' and plan, tonumber(late)
    if not name or #name > 200 or (plan == '') ~= (late == '') then
      us = nil
    else
      entries = entries or {}
      entries[#entries + 1] = detail.entry
    end
  elseif entry ~= '' then
    us = nil
  end
  detail.us, detail.delayed = tonumber(us), sign == '+'
  if not detail.us then
    class = nil
  end
end
