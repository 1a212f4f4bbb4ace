-- Reads dead jobs that are to be copied to another queue. It writes nothing.
--
-- KEYS: as named below
-- ARGV: protocol: the newest layout that the caller knows; room: most bytes of records to return; the first may have more
--       then for each job: id: its ID
-- Reply: {'ok', to, times, records}
--        to: the queue that gets copies, as the settings say, '' if they say none; times: when the jobs died, in us, as the notes say, for as
--        many of the IDs as the room allows; '' without a note; records: theirs; '' without a note, and for a job that is neither dead nor held for
--        a move
-- Errors: those of Redis, and 'LAYOUT n signalbox: ...' as in enqueue.lua, but only if the layout is older.

local JOBS, DUE, STATS, DEAD, NOTES, SETTINGS = unpack(KEYS)
local fixed = 2 -- arguments before the IDs
local protocol, room = unpack(ARGV, 1, fixed)

local withheld = read_settings(SETTINGS, STATS, protocol)
if (tonumber(withheld) or 999) < tonumber(protocol) then
  return other_layout(withheld, protocol)
end
room = tonumber(room)
local times, records, got = {}, {}, false
for i = fixed + 1, #ARGV do
  local id = ARGV[i]
  local time, record = redis.call('HGET', NOTES, 'dead ' .. id) or '', ''
  if time ~= '' and dead_or_held(id, JOBS, DUE, DEAD) then
    room = room - redis.call('HSTRLEN', JOBS, id)
    if room < 0 and got then
      break
    end
    record, got = redis.call('HGET', JOBS, id) or '', true
  end
  times[#times + 1], records[#records + 1] = time, record
end
return {'ok', redis.call('HGET', SETTINGS, 'copy_dead') or '', times, records}
