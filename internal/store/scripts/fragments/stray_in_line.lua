-- include: group_of, line_of

-- Reports whether a member of LINED is not the place of a job that waits there, as its record says. The second value is the key of the group
-- whose line it is in, or nil if it is in none.
local function stray_in_line(member)
  local key, id = string.match(member, '^[012]([sg][^\1]+)\1' .. string.rep('%d', 16) .. '(.+)$')
  local record = id and redis.call('HGET', JOBS, id)
  return not record or group_of(record) ~= key or line_of(record, key, id) ~= member, key
end
