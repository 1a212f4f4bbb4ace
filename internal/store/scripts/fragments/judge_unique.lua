-- A step of enqueue.lua: finds out whether another job has the unique key of this one. If so, the outcome is 'u' or 'U', and met gets the
-- other job. A throttled job is due at the end of the window that it meets.
local scope, key = detail.scope, detail.unique
local value = keys_held[key]
if value then
  local till, other = string.match(value, '^(%w+) (.+)$')
  local ends, where = tonumber(till), seen[other] or holders[other]
  if ends and ends > now and scope == 't' then
    us, later = ends, true
    if not full then
      cut_short = cut_short or {}
      cut_short[#cut_short + 1] = key
    end
  elseif ends and ends > now or not ends and (where == '0' or where == 's') then
    if outcome ~= '1' then
      replaced[#replaced] = nil -- the job that has ended stays
    end
    outcome = 'u'
    if detail.replaces and till == scope and (scope == 's' or scope == 't') and not moving[other] then
      outcome = 'U' -- it hasn't started: it gets what this one has
      updated = updated or {}
      updated[#updated + 1] = {other, j, us}
    end
    met = met or {}
    met[#met + 1] = where .. other
  end
end
if outcome ~= 'u' and outcome ~= 'U' and not full then
  local ends = scope == 'w' and digits(now + detail.window)
  keys_held[key] = (ends or scope) .. ' ' .. id
  keys_taken = keys_taken or {}
  local k = #keys_taken
  keys_taken[k + 1], keys_taken[k + 2] = key, keys_held[key]
  if ends then
    windows = windows or {}
    windows[#windows + 1] = ends
    windows[#windows + 1] = key
  end
end
