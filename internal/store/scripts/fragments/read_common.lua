-- A step of enqueue.lua: most jobs that aren't plain ones are due at once, and have a group or a unique key and nothing else. They need no details.
-- common is the class of such a job; or nil, also if the arguments aren't valid: read_detail finds that out then.
local common
local digit, plus, flags, a, b, c = byte(class, 1, 6)
if plus == 43 and when == '' then -- '+'
  names = names or {[48] = '0', [49] = '1', [50] = '2'}
  if flags == 4 and (c == 101 or c == 115) and a * 256 + b == #class - 5 and #class > 6 and #class < 409 then -- scope 'e' or 's'
    common = names[digit]
    if common then
      keyed, uniques = keyed or {}, uniques or {}
      keyed[j] = sub(class, 7)
      uniques[#uniques + 1] = keyed[j]
    end
  elseif flags == 1 and (b == 103 or b == 115) and a == #class - 4 and a > 1 and a < 202 then -- 'g' or 's'
    local key = sub(class, 5)
    lined = lined or {n = 0, members = {}, keys = {}, classes = {}, known = {}}
    if not lined.known[key] then
      lined.known[key] = find(key, '^[sg][!-z|~]+$') and true or nil
    end
    common = lined.known[key] and names[digit]
    if common then
      grouped = grouped or {}
      grouped[j] = key
    end
  end
end
