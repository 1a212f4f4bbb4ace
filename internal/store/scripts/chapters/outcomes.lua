-- A claim settles deliveries that did not just complete.

-- Reads the marks of jobs that were cancelled while they ran. marked has the IDs of those that completed.
local function read_marks(batch, marked)
  for j = batch.completed + 1, #batch.deliveries - (batch.notes or 0) do
    if is_marked(batch.deliveries[j]) then
      marked = marked or {}
      marked[#marked + 1] = batch.args[batch.others + 6 * (j - batch.completed - 1)]
    end
  end
  if marked then
    batch.marks = {}
    for k, mark in ipairs(redis.call('HMGET', CANCELS, unpack(marked))) do
      batch.marks[marked[k]] = mark or ''
    end
  end
end

-- Counts a delivery that ended by itself, of a job that has crashed. With the fifth one in a row the job's crashes are over: it waits among the jobs of
-- its priority again. Returns the record, and the class of the job.
local function survived(record, class)
  if not has_header(record) or string.byte(record, 3) == 0 then
    return record, class
  end
  local n, ms = past_of(record)
  if n + 1 < survived_at then
    return with_past(record, n + 1, ms), class
  end
  return with_past(string.sub(record, 1, 2) .. '\0' .. string.sub(record, 4)), string.sub(record, 2, 2)
end

-- Reports whether a job that is put off leaves its group, and comes into its line again when it is due. It stays if the group is serial, unless its
-- record says that it yields. A suspect stays.
local function yields(record, class, group)
  return class ~= 's' and (string.sub(group, 1, 1) ~= 's' or has_header(record) and string.byte(record, 4) % 32 >= 16)
end

-- Makes a job due again after a delay (us). outcome is 'retry' or 'delay', class is that of the call. group is the one that it holds, or nil. Returns its
-- member of DUE if it is due already.
local function put_off(batch, ready, now, id, outcome, class, delay, record, group)
  if #class > 1 then
    record, class = survived(record, string.sub(class, 1, 1))
  end
  if group and yields(record, class, group) then
    class = later_class(class)
    batch.left[#batch.left + 1] = group
  end
  local at = now + delay
  redis.call('HSET', JOBS, id, redue(record, at))
  ready.grown = math.max(ready.grown, #record)
  redis.call('ZADD', DUE, digits(at), class .. id)
  note_change(outcome, 1)
  return at <= now and class .. id or nil
end

-- Settles a delivery that didn't just complete, and that the session has. i is where it stands in args. Its job goes to its new place before it leaves the
-- session, so that a user who isn't permitted a command loses no job. Returns its member of DUE if it is due already.
local function settle_other(batch, ready, ends, i, group)
  local id, _, outcome, class, delay, record = unpack(batch.args, i, i + 5)
  local again, there, member = outcome == 'retry' or outcome == 'delay', true, nil
  if record == '' then -- it is read only if it changes: it may be large
    if again then
      record = redis.call('HGET', JOBS, id)
      there = record
    else
      record = nil
      there = redis.call('HEXISTS', JOBS, id) == 1
    end
  end
  if there and again then
    member = put_off(batch, ready, ends.now, id, outcome, class, delay, record, group)
  elseif there and outcome == 'return' then
    enter(ready, class, {id}, true)
    note_change(outcome, 1)
  else
    if outcome == 'completed' and record then
      finish_kept(ends, id, record)
    else
      finish(ends, there and outcome or 'completed', {id}, record)
    end
    batch.left[#batch.left + 1] = group
  end
  redis.call('HDEL', INFLIGHT, id)
  return member
end

-- Settles the deliveries that didn't just complete. ended has the IDs of those that did, as keys. groups says whether jobs may hold groups. Members of
-- DUE that are due already are added to promotable.
local function settle_others(batch, ready, ends, ended, groups, promotable)
  local args, marks, j = batch.args, batch.marks or {}, batch.completed
  for i = batch.others, #args, 6 do
    j = j + 1
    local id, token, outcome, _, _, record = unpack(args, i, i + 5)
    local delivery = batch.deliveries[j]
    if ended[id] or not owns(delivery, token) then
      table.insert(batch.refused, j)
    elseif marks[id] then
      ended[id] = true
      batch.left[#batch.left + 1] = delivery_group(delivery)
      if outcome ~= 'cancelled' then
        table.insert(batch.overruled, j)
      end
      finish_marked(ends, id, marks[id], outcome == 'completed', outcome ~= 'completed' and record ~= '' and record or nil)
      redis.call('HDEL', INFLIGHT, id)
    else
      ended[id] = true
      promotable[#promotable + 1] = settle_other(batch, ready, ends, i, groups and delivery_group(delivery) or nil)
    end
  end
end

-- Frees the unique keys of the jobs that a batch has ended, and notes these ends for flows.
local function leave_keys_and_flows(batch, ends)
  local stays = {} -- positions of deliveries that were refused
  for k = 1, #batch.refused do
    stays[batch.refused[k]] = true
  end
  for k = 1, #batch.overruled do
    stays[batch.overruled[k]] = false -- it has ended, whatever was asked
  end
  local keys, ids, args = {}, {}, batch.args
  for j = 1, #batch.deliveries - (batch.notes or 0) do
    local delivery = batch.deliveries[j]
    local long = delivery and #delivery > 16 and stays[j] ~= true -- a token has at most 16 digits
    local _, _, _, key, links = delivery_fields(long and delivery)
    if key ~= '' or links ~= '' then
      local i = batch.others + 6 * (j - batch.completed - 1)
      local id = j > batch.completed and args[i] or args[batch.first - 2 + 2 * j]
      local outcome = j > batch.completed and args[i + 2] or 'completed'
      local again = outcome == 'retry' or outcome == 'delay' or outcome == 'return'
      if not again or stays[j] == false or redis.call('HEXISTS', JOBS, id) == 0 then
        if key ~= '' then
          keys[#keys + 1], ids[#ids + 1] = key, id
        end
        note_delivery_end(ends, links, stays[j] == nil and outcome == 'completed' and outcome or 'deleted', id)
      end
    end
  end
  if #keys > 0 then
    free_keys(keys, ids)
  end
end

-- Returns the numbers of a list that a lane has, such as '1,4'.
local function positions(list)
  local numbers = {}
  for position in string.gmatch(list, '%d+') do
    numbers[#numbers + 1] = tonumber(position)
  end
  return numbers
end

-- Keeps the notes of deliveries that run on or will run again.
local function keep_notes(batch)
  local args, spans, j = batch.args, {}, #batch.deliveries - batch.notes
  for i = batch.first + 2 * batch.completed, batch.others - 1, 3 do
    j = j + 1
    if owns(batch.deliveries[j], args[i + 1]) then
      spans[#spans + 1] = args[i]
      spans[#spans + 1] = args[i + 1] .. ' ' .. args[i + 2]
    end
  end
  if #spans > 0 then
    redis.call('HSET', NOTES, unpack(spans))
  end
end

-- Has jobs go on that wait for flows whose members a claim has ended, and writes what it has changed of groups. Returns whether jobs may run that couldn't before.
local function save_groups_and_flows(closer, ready, ends)
  local released = false
  if ends.linked then
    local acts = new_acts(ends.now, ready.withheld, ends)
    acts.groups = closer.groups
    turn_flows(acts)
    local ahead = redis.call('ZCARD', TURNS)
    for list in pairs(ready.lengths) do
      ready.lengths[list] = redis.call('LLEN', list)
      ahead = ahead + (list ~= SUSPECT and ready.lengths[list] or 0)
    end
    ready.grown, released = math.max(ready.grown, acts.grown), acts.woken and ahead > 0 and ready.withheld == ''
  end
  return closer.groups.save() or released
end
