-- include: note, finish, unique_of, free_keys

-- Ends a job that hasn't started in time. It has left its place. record is the one that it has. It is dead, with a last error that says why.
local function expire(id, record)
  local why = 'expired: it had not started in time'
  finish('dead', {id}, record .. ':' .. string.char(#why) .. why) -- the field last_error
  note('expired', 1)
  local scope, key = unique_of(record)
  if scope and scope ~= 'w' then
    free_keys({key}, {id})
  end
  told = told + #record
  late = late or {}
  late[#late + 1] = id
  late[#late + 1] = told <= 262144 and record or ''
end
