-- Where jobs are: ready lists, DUE, and the sets of those that have ended.

-- Returns the states of jobs that have ended and are kept, by their names. Completed ones are kept if the queue's settings
-- say so. Each state has:
-- set, the sorted set of its ids, in the order in which they go: the chapter retention has the scores;
-- bytes, the field of stats that counts its bytes;
-- met, the outcome of an enqueue that finds a job in this state.
local function terminal_states()
  return {
    dead = {set = DEAD, bytes = 'dead_bytes', met = 'd'},
    cancelled = {set = CANCELLED, bytes = 'cancelled_bytes', met = 'c'},
    completed = {set = COMPLETED, bytes = 'completed_bytes', met = 'f'},
  }
end

-- Returns the state of a job that has a record and waits, if it does, under that class. Then, of a terminal one, its entry of
-- terminal_states; of a scheduled one its member of DUE, and its time; of a running one the number of its session's key, and
-- what the session holds for it. One that is in none of these places is ready: the lists
-- and the lines of groups aren't searched. Those from first_session on are the sessions' keys.
local function place_of(id, class, first_session)
  local terminal = terminal_states()
  for name, state in pairs(terminal) do
    if redis.call('ZSCORE', state.set, id) then
      return name, state
    end
  end
  for _, other in ipairs({class, '0', '1', '2', 's', 'a', 'b', 'c'}) do
    local us = redis.call('ZSCORE', DUE, other .. id)
    if us then
      return 'scheduled', other .. id, tonumber(us)
    end
  end
  for k = first_session, #KEYS do
    local delivery = redis.call('HGET', KEYS[k], id)
    if delivery then
      return 'running', k, delivery
    end
  end
  return 'ready'
end

-- Takes a ready job out of its list: that of its class, or whichever has it. Returns whether one had it, and how many entries of
-- lists Redis has looked at for it.
local function unlist(id, class)
  local looked = 0
  for _, list in ipairs({ready_lists[class] or NORMAL, HIGH, NORMAL, LOW, SUSPECT}) do
    -- The ends first: jobs are acted on in their order, or soon after they came.
    local length = redis.call('LLEN', list)
    local first = length > 2000 and redis.call('LPOS', list, id, 'MAXLEN', 1000)
    local last = length > 2000 and not first and redis.call('LPOS', list, id, 'RANK', -1, 'MAXLEN', 1000)
    if first then
      looked = looked + 2 * first
    elseif last then
      looked = looked + 1000 + 2 * (length - last)
    else
      looked = looked + length
    end
    if redis.call('LREM', list, last and -1 or 1, id) > 0 then
      return true, looked
    end
  end
  return false, looked
end

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

-- Returns whether a job is dead, or is held for a move: then its record says what it was.
local function dead_or_held(id, jobs, due, dead)
  if redis.call('ZSCORE', dead, id) then
    return true
  end
  local record = redis.call('HGET', jobs, id)
  return record and tonumber(redis.call('ZSCORE', due, due_member(record, id)) or 0) == due_when_held
end

-- Reports whether a state is one of terminal_states.
local function has_ended(state)
  return state == 'dead' or state == 'cancelled' or state == 'completed'
end

-- Reports whether a job is in one of terminal_states.
local function is_terminal(id)
  for _, state in pairs(terminal_states()) do
    if redis.call('ZSCORE', state.set, id) then
      return true
    end
  end
  return false
end
