-- Looks at a page of the jobs that wait in the lines of groups. It writes nothing.
--
-- KEYS: as named below
-- ARGV: cursor, count: as for ZSCAN
-- Reply: {'ok', next, keys, strays}
--        next: the cursor to go on with, '0' at the end; keys: of the groups whose jobs are in the page; strays: members that aren't the place
--        which the record of their job says, or that name no job
-- Errors: those of Redis.

local JOBS, LINED = unpack(KEYS)
local cursor, count = unpack(ARGV)

local page = redis.call('ZSCAN', LINED, cursor, 'COUNT', count)
local keys, seen, strays = {}, {}, {}
for i = 1, #page[2], 2 do
  local member = page[2][i]
  local stray, key = stray_in_line(member)
  if stray then
    strays[#strays + 1] = member
  end
  if key and not seen[key] then
    seen[key] = true
    keys[#keys + 1] = key
  end
end
return {'ok', page[1], keys, strays}
