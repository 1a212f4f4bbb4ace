-- What is done to jobs one by one: by people, and when jobs are moved to another queue.

-- Begins a call that acts on jobs. It is given to the functions below:
--   now: the time (us)
--   withheld: see read_settings
--   ends: what finish needs to know, see there
--   groups: the lines of groups, once a job has a group
--   woken: whether a worker is to be woken
--   grown: the length of the longest record that a job got which waits
--   cost: how much Redis has had to look at, in entries of lists
--   told: what workers are to be told of jobs that were cancelled, by the numbers of their sessions' keys
local function new_acts(now, withheld, ends)
  return {now = now, withheld = withheld, ends = ends, groups = nil, woken = false, grown = 0, cost = 0, told = {}}
end

-- Ends the call: notes the length of the longest record, gives turns to lines of groups, and wakes a worker if there is something for it.
local function end_acts(acts)
  local largest = tonumber((string.match(redis.call('HGET', STATS, 'largest') or '', '^%d+$')))
  if largest and acts.grown > largest then
    redis.call('HSET', STATS, 'largest', acts.grown)
  end
  if acts.groups and acts.groups.save() and acts.withheld == '' then
    acts.woken = true
  end
  if acts.woken then
    wake_one(IDLE)
  end
end

-- Returns the lines of groups, in which the group with this key was read.
local function groups_with(acts, key)
  acts.groups = acts.groups or lines_of_groups()
  acts.groups.load({key})
  return acts.groups
end

-- Returns what is known of a job, or nil if there is none:
--   id, record
--   state: as place_of returns it, or 'held' of one that is being moved, or 'awaiting' of one that waits for a flow: then place is its member of AWAITING
--   place, value: what place_of returns beside the state; value is when it is due, or its delivery
--   ended: whether it is dead, cancelled or completed
-- Those from first_session on are the sessions' keys.
local function find_job(id, first_session)
  local record = redis.call('HGET', JOBS, id)
  if not record then
    return nil
  end
  local state, place, value = place_of(id, class_of(record), first_session)
  if state == 'scheduled' and value == due_when_held then
    state = 'held'
  elseif state == 'ready' and string.byte(record, 4) and string.byte(record, 4) % 128 >= 64 then
    place = awaits(id, record)
    state = place and 'awaiting' or state
  end
  return {id = id, record = record, state = state, place = place, value = value, ended = has_ended(state)}
end

-- Takes a job out of its place, so that it can have another. If it holds its group, it leaves the group if leaves is set. Returns whether it was in
-- its place, and whether it still holds its group.
local function take_out(acts, job, leaves)
  local id, record, place = job.id, job.record, job.place
  local group = group_of(record)
  local g = group and groups_with(acts, group)
  local found, holds = true, false
  if job.state == 'ready' then
    if not (g and g.quit(line_of(record, group, id))) then
      local looked
      found, looked = unlist(id, class_of(record))
      acts.cost = acts.cost + looked
      holds = found and group
    end
  elseif job.state == 'scheduled' then
    redis.call('ZREM', DUE, place)
    holds = group and not is_later(place)
  elseif job.state == 'awaiting' then
    redis.call('ZREM', AWAITING, place)
  else
    forget(place, id, #record)
  end
  if group and string.byte(record, 4) % 16 >= 8 then
    redis.call('ZREM', EXPIRES, id) -- if it hadn't started
  end
  if holds and leaves then
    g.leave({group})
    holds = false
  end
  return found, holds
end

-- Puts a job, with this record, where it waits: into DUE until us; or, if us is nil, into its group's line, or into its ready list. It lines up unless it
-- holds its group.
local function put_waiting(acts, id, record, us, holds)
  local group = not holds and group_of(record)
  redis.call('HSET', JOBS, id, record)
  if us then
    local member = group and due_member(record, id) or class_of(record) .. id
    redis.call('ZADD', DUE, digits(us), member)
    acts.woken = acts.woken or us < due_when_held and redis.call('ZRANGE', DUE, 0, 0)[1] == member
  elseif group then
    local any = groups_with(acts, group).join({line_of(record, group, id)})
    acts.woken = any and acts.withheld == '' or acts.woken
  else
    acts.woken = make_ready(ready_lists[class_of(record)] or NORMAL, {id}, false, acts.withheld) or acts.woken
  end
  local at = expiry_of(record)
  if at then
    redis.call('ZADD', EXPIRES, digits(at), id)
    acts.woken = acts.woken or redis.call('ZRANGE', EXPIRES, 0, 0)[1] == id
  end
  acts.grown = math.max(acts.grown, #record)
end

-- Takes a job out of its place, and puts it with another record where it waits until us, which may have passed. Returns false if it was in no place.
local function transfer(acts, job, record, us, leaves)
  local found, holds = take_out(acts, job, leaves)
  if found then
    put_waiting(acts, job.id, record, us > acts.now and us or nil, holds)
  end
  return found
end

-- Gives a job another record, and leaves it in its place.
local function rewrite(acts, job, record)
  redis.call('HSET', JOBS, job.id, record)
  if job.ended then
    count_up(STATS, job.place.bytes, #record - #job.record)
  else
    acts.grown = math.max(acts.grown, #record)
  end
end

-- Marks a job that runs as cancelled, and notes that its worker is to be told. A mark that is there stays. mark is what CANCELS has behind the token.
local function mark_cancelled(acts, job, mark)
  local id, delivery, k = job.id, job.value, job.place
  local token, flags = delivery_fields(delivery)
  if not string.find(flags, 'c', 1, true) then
    redis.call('HSET', KEYS[k], id, (token or '0') .. ' ' .. flags .. 'c' .. (token and string.sub(delivery, #token + #flags + 2) or ''))
    redis.call('HSET', CANCELS, id, (token or '0') .. ' ' .. mark)
  end
  acts.told[k] = acts.told[k] or {}
  table.insert(acts.told[k], id .. ' ' .. (token or '0'))
end

-- Tells workers which of their jobs were cancelled. inflight and channels are what stands before a session in the name of its key and of its channel.
local function tell_cancelled(acts, inflight, channels)
  for k, deliveries in pairs(acts.told) do
    local channel = channels .. string.sub(KEYS[k], #inflight + 1)
    local message = 'cancel ' .. table.concat(deliveries, ' ')
    if (send('s' .. channel, message) or 0) == 0 then
      send('p' .. channel, message)
    end
  end
end

-- Ends a job that waits, in this state, with why behind its record. No worker hears of it, nor is it copied if it is dead. Returns false if it is in no place.
local function end_waiting(acts, job, state, why)
  local id, record = job.id, job.record
  if not take_out(acts, job, true) then
    return false
  end
  local dropped = finish(acts.ends, state, {id}, has_header(record) and record .. why or nil, {unpack(retention_of(acts.ends), 1, 3)})
  free_key_of(id, record)
  acts.cost = acts.cost + 250 * dropped
  return true
end

-- Cancels a job: one that waits ends, and one that runs is marked. Returns false if it is in no place.
local function cancel_job(acts, job, why, mark)
  if job.state == 'running' then
    mark_cancelled(acts, job, mark)
    return true
  end
  return job.state == 'cancelled' or end_waiting(acts, job, 'cancelled', why)
end

-- Deletes a job that doesn't run. Returns false if it is in no place.
local function delete_job(acts, job)
  if not take_out(acts, job, true) then
    return false
  end
  local links = not job.ended and links_of(job.record)
  if links then
    note_end(acts.ends, links, 'deleted', job.id)
  end
  finish(acts.ends, 'deleted', {job.id})
  free_key_of(job.id, job.record, true)
  return true
end

-- Has a job run at the time due, with this record. If it had ended, it gets its unique key again, which nobody else has. Returns false if it is in no place.
local function run_job(acts, job, record, due)
  if job.state == 'ready' and due <= acts.now then
    rewrite(acts, job, record)
    return true
  end
  due = math.max(due, acts.now)
  record = rerun(record, due, job.ended)
  local waits, found = nil, nil
  if job.ended and links_of(record) then
    record, waits = link_again(acts.ends, job.id, record, job.state)
  end
  if waits then
    found = take_out(acts, job, false)
    redis.call('HSET', JOBS, job.id, redue(record, due_when_held))
    redis.call('ZADD', AWAITING, '0', waits)
  else
    found = transfer(acts, job, record, due, false)
  end
  if found and job.ended then
    give_key(job.id, record, acts.now)
    note_change('revived', 1)
  end
  return found
end

-- Gives a job that waits another class, '0', '1' or '2'. Returns false if it is in no place.
local function prioritise(acts, job, class)
  local before = job.record
  local record = string.sub(before, 1, 1) .. class .. string.sub(before, 3)
  if record == before or job.state == 'awaiting' or class_of(record) == class_of(before) and not group_of(record) then -- as a suspect's is, but for one in a line
    rewrite(acts, job, record)
    return true
  end
  return transfer(acts, job, record, job.state == 'scheduled' and job.value or 0, false)
end

-- Holds a job that is being moved to another queue, until due, which is due_when_held. Its record gets a field 101 (docs/wire.md): its state, a space, and
-- when it ended (us), or 0. Returns false if it is in no place.
local function hold_job(acts, job, record, due)
  local place = job.place
  local was = job.state .. ' ' .. (job.ended and digits(ended_at(tonumber(redis.call('ZSCORE', place.set, job.id)), job.record)) or '0')
  return transfer(acts, job, redue(record .. '\170\6' .. string.char(#was) .. was, due), due, true)
end

-- Puts a job into the place of a state, with this record. old is the record that it had if it was held: it leaves that place first. us is when it is due, or has
-- ended. The state 'gone' deletes the job.
local function place_job(acts, id, old, state, us, record)
  if old then
    redis.call('ZREM', DUE, due_member(old, id))
  end
  if state == 'gone' then
    finish(acts.ends, 'deleted', {id})
    free_key_of(id, old)
  elseif has_ended(state) then
    retain(terminal_states()[state], id, record, own_age(record), retention_of(acts.ends), math.min(us, acts.now))
    tell_end(id)
  else
    put_waiting(acts, id, record, state ~= 'ready' and us or nil, false)
  end
  if not old then
    note_change('enqueued', 1)
  end
end
