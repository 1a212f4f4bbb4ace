-- Looks whether jobs have ended, for calls that wait for it. It writes nothing.
--
-- KEYS: as named below
-- ARGV: protocol: the newest layout that the caller knows; room: most bytes of records to return; the first may have more
--       then for each job: id: its ID
-- Reply: {'ok', time in us, states, scores, records}
--        each for as many of the IDs as the room allows. states: 'completed', 'dead' or 'cancelled' of a job that has ended and is kept; 'live' of one that hasn't ended; 'unkept' of
--        one that hasn't, and that isn't kept when it completes; '' if there is none; scores, records: of one that has ended the score in the set of its state, and its record, else ''
-- Errors: those of Redis, and 'LAYOUT n signalbox: ...' as in enqueue.lua, but only if the layout is older.

local JOBS, STATS, DEAD, CANCELLED, SETTINGS, COMPLETED = unpack(KEYS)
local fixed = 2 -- arguments before the IDs
local protocol, room = unpack(ARGV, 1, fixed)

local withheld = read_settings(SETTINGS, STATS, protocol)
if (tonumber(withheld) or 999) < tonumber(protocol) then
  return other_layout(withheld, protocol)
end
room = tonumber(room)
local terminal, kept = terminal_states(), keeps(SETTINGS)
local states, scores, records = {}, {}, {}
for i = fixed + 1, #ARGV do
  local id, where, score = ARGV[i], '', ''
  local record = redis.call('HGET', JOBS, id)
  for name, state in pairs(record and terminal or {}) do
    local at = redis.call('ZSCORE', state.set, id)
    if at then
      where, score = name, at
    end
  end
  if record and where == '' then
    local own = own_age(record)
    local held = has_header(record) and due_of(record) == due_when_held -- it is being moved, and may have ended
    where = not held and (own == 0 or not own and not kept) and 'unkept' or 'live'
  end
  record = score ~= '' and record or ''
  room = room - #record
  if room < 0 and #states > 0 then
    break
  end
  states[#states + 1], scores[#scores + 1], records[#records + 1] = where, score, record
end
return {'ok', clock(), states, scores, records}
