-- Reads records of jobs in order, as far as room bytes hold them, or the first alone; of those only whose id has the prefix. Returns how many
-- ids it has looked at, and those with the prefix and their records. A record that is missing is false.
local function read_records(all, room, prefix)
  local ids, looked = {}, 0
  for _, id in ipairs(all) do
    if string.sub(id, 1, #prefix) == prefix then
      room = room - redis.call('HSTRLEN', JOBS, id)
      if room < 0 and #ids > 0 then
        break
      end
      ids[#ids + 1] = id
    end
    looked = looked + 1
  end
  return looked, ids, #ids > 0 and redis.call('HMGET', JOBS, unpack(ids)) or {}
end
