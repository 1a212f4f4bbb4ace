-- The process of a session has died: its jobs are taken back.

-- Returns what take_crashed needs to know of a session's death:
--   earliest, latest: when its process died (us). It had renewed its session, and claimed jobs, before that, and would have renewed the session again
--   apart: for how long (us) a suspect keeps others out of a session
--   limit: crashes at which a job is dead
--   last_error: bytes to append to the record of such a job
-- expiry is the session's; ttl is how long it lived from each renewal; newest is the highest token that it had.
local function death_of(expiry, ttl, newest, apart, limit, last_error)
  local renewed = expiry - ttl
  local earliest = math.max(renewed, newest)
  return {earliest = earliest, latest = math.max(renewed + apart, earliest), apart = apart, limit = limit, last_error = last_error}
end

-- Begins what a call takes back, which the functions below are given:
--   again: IDs of the jobs that run again
--   dead, lost, cancelled: of jobs that have died, of those that run again, and of those that were cancelled while they ran: ID, token, record and span
--     context of each, one after the other
--   records: of those that run again and got a crash: ID and record
--   heads: by class, the IDs of jobs that come to the head of its list, the newest first
--   tail: the IDs of suspects with two crashes, the oldest first
--   missing: the IDs of jobs without a record
--   left: of jobs that have ended, or are missing: ID, and what the session held
--   dropped: the IDs of those that run again whose notes are of attempts before
local function new_taken()
  return {again = {}, dead = {}, lost = {}, cancelled = {}, records = {}, heads = {}, tail = {}, missing = {}, left = {}, dropped = {}}
end

-- Returns the span context of a delivery with this token from the job's note, or '' if there is none, or one of an attempt before it.
local function span_of(note, token)
  local of, span = string.match(note or '', '^(%d+) (.*)$')
  return of == token and span or ''
end

-- Adds a delivery to one of the lists of the reply.
local function add_delivery(list, id, token, record, span)
  local n = #list
  list[n + 1], list[n + 2], list[n + 3], list[n + 4] = id, token, record, span
end

-- Notes that a job has ended, or is gone. value is what the session held.
local function note_left(taken, id, value)
  local n = #taken.left
  taken.left[n + 1], taken.left[n + 2] = id, value
end

-- Notes that a job runs again. crashes is what crash returned with the record. A suspect with two crashes runs behind those that have more.
local function note_again(taken, id, record, crashes)
  if crashes then
    local n = #taken.records
    taken.records[n + 1], taken.records[n + 2] = id, record
  end
  if crashes == suspect_at then
    table.insert(taken.tail, 1, id)
  else
    local class = crashes and crashes >= suspect_at and 's' or string.sub(record, 2, 2)
    taken.heads[class] = taken.heads[class] or {}
    table.insert(taken.heads[class], id)
  end
  taken.again[#taken.again + 1] = id
end

-- Counts a crash of a job that the session ran. At the limit the job is dead, else it runs again. Returns its record, or nil if it is dead.
local function take_crashed(taken, ends, death, id, token, record, span)
  local began, crashes = tonumber(token) or 0, nil -- a strange token may be no number
  record, crashes = crash(record, math.max(death.earliest - began, 0), math.max(death.latest - began, 0), death.apart)
  if crashes and crashes >= death.limit then
    finish(ends, 'dead', {id}, record .. death.last_error)
    add_delivery(taken.dead, id, token, record, span)
    return nil
  end
  note_again(taken, id, record, crashes)
  return record
end

-- Writes what was taken: the records of jobs that run again, these jobs into their ready lists, and the ends of those that are missing. largest is the bytes
-- of the largest record, nil if that isn't known. Returns whether to wake a worker for them.
local function put_back(taken, ends, largest, withheld)
  local records, grown = taken.records, 0
  if #records > 0 then
    redis.call('HSET', JOBS, unpack(records))
  end
  for i = 2, #records, 2 do
    grown = math.max(grown, #records[i])
  end
  if largest and grown > largest then
    redis.call('HSET', STATS, 'largest', grown)
  end
  local woken = #taken.tail > 0 and make_ready(SUSPECT, taken.tail, false, withheld)
  for class, ids in pairs(taken.heads) do
    woken = make_ready(ready_lists[class] or NORMAL, ids, true, withheld) -- the oldest is pushed last, so that it stands first
  end
  if #taken.missing > 0 then
    finish(ends, 'completed', taken.missing)
  end
  local crashed = math.floor(#records / 2) + math.floor(#taken.dead / 4)
  if crashed > 0 then
    note_change('crashed', crashed)
  end
  if #taken.dropped > 0 then
    redis.call('HDEL', NOTES, unpack(taken.dropped))
  end
  return woken
end

-- Has jobs that have ended leave their groups, frees their unique keys, and notes their ends for flows: as outcome says, unless their records are kept. left is as new_taken has it.
-- Returns whether lines of groups may go on.
local function leave_all(left, ends, outcome)
  local groups, keys, ids, moved = {}, {}, {}, false
  for i = 1, #left, 2 do
    local _, _, group, key, links = delivery_fields(left[i + 1])
    groups[#groups + 1] = group ~= '' and group or nil
    note_delivery_end(ends, links, outcome, left[i])
    if key ~= '' then
      keys[#keys + 1], ids[#ids + 1] = key, left[i]
    end
  end
  if #groups > 0 then
    local g = lines_of_groups()
    g.leave(groups)
    moved = g.save()
  end
  if #keys > 0 then
    free_keys(keys, ids)
  end
  return moved
end
