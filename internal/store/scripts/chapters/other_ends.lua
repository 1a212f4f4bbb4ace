-- Jobs end that were marked, that are kept, or that have expired.

-- Ends a job that was cancelled while it ran. mark is what CANCELS had of it: a token, ' ', a length, ' ', so many bytes to append
-- to the record, and those to append instead if its handler had returned nil, as finished says. record is the one to keep; nil:
-- the one that is there.
local function finish_marked(ends, id, mark, finished, record)
  record = record or redis.call('HGET', JOBS, id)
  if not record then
    finish(ends, 'completed', {id})
  else
    local length, at = string.match(mark, '^%d+ (%d+) ()')
    if length and has_header(record) then
      local why = string.sub(mark, at)
      length = tonumber(length)
      record = record .. (finished and string.sub(why, length + 1) or string.sub(why, 1, length))
    end
    finish(ends, 'cancelled', {id}, record)
  end
  redis.call('HDEL', CANCELS, id)
end

-- Ends a completed job that its worker asks to keep. more is what is appended to its record. If the queue keeps none any more, the job is deleted like
-- others, unless its record says how long it is to be kept.
local function finish_kept(ends, id, more)
  local record = redis.call('HGET', JOBS, id)
  if ends.kept == nil then
    ends.kept = keeps(SETTINGS) or false
  end
  local bounds = ends.kept
  if record and not bounds and own_age(record) then
    ends.own = ends.own or {ends.usual[1], ends.usual[2], math.huge} -- one for the call: retain counts in it
    bounds = ends.own
  end
  if record and bounds then
    finish(ends, 'completed', {id}, has_header(record) and record .. more or record, bounds)
  else
    finish(ends, 'completed', {id})
  end
end

-- Ends a member of a flow that was cancelled, and keeps no record of it. Returns whether it is so. The job has left its place.
local function ends_with_flow(ends, id, links)
  local ref = string.match(' ' .. links, ' r(%S+)')
  local f = ref and read_flow(ends, ref)
  if not f or not is_flow(f, 'x') then
    return false
  end
  note_end(ends, links, 'cancelled', id)
  finish(ends, 'cancelled', {id}, nil, 'unkept')
  return true
end

-- Ends a job that hasn't started in time. It has left its place. record is the one that it has. It is dead, with a last error that says why.
local function expire(ends, id, record)
  local why = 'expired: it had not started in time'
  finish(ends, 'dead', {id}, record .. ':' .. string.char(#why) .. why) -- the field last_error
  note_change('expired', 1)
  local scope, key = unique_of(record)
  if scope and scope ~= 'w' then
    free_keys({key}, {id})
  end
  ends.told = (ends.told or 0) + #record
  ends.late = ends.late or {}
  table.insert(ends.late, id)
  table.insert(ends.late, ends.told <= 262144 and record or '')
end

-- Ends jobs that wait and should have started by now. over has their IDs, at most 100. Returns whether there may be more of them.
local function expire_late(over, ends, g)
  local bytes = 0
  for i = 1, #over do
    local id = over[i]
    bytes = bytes + redis.call('HSTRLEN', JOBS, id)
    if bytes > 1048576 and i > 1 then
      return true
    end
    local record = redis.call('HGET', JOBS, id)
    local at = record and expiry_of(record)
    local key = at and group_of(record)
    if at and at > ends.now then
      redis.call('ZADD', EXPIRES, digits(at), id) -- another program has put it there
    else
      redis.call('ZREM', EXPIRES, id)
      if key then
        g.load({key})
        if g.quit(line_of(record, key, id)) or redis.call('ZREM', DUE, due_member(record, id)) == 1 then
          expire(ends, id, record)
        end
      end
    end
  end
  return #over == 100
end
