-- A call puts jobs in. Most jobs are bare: they are due at once, and have no extras and no marks.

-- Reads and checks the arguments of a call for n jobs. Returns what it asks for, or nil and an error.
--   args: ARGV. Job j has four of them, from args[4 * j - 2] on: id, class, when, envelope
--   ids, classes: by number, the ID and the class ('0', '1' or '2') of each job
--   details: by number, what new_details says, of a job that needs it. Most jobs don't: there it is 'u' of one with a unique key, 'g' of one of
--            a group, and nil of a bare one
--   keys: by number, the unique key of a job with 'u', and the group's key of one with 'g'
--   uniques: a list of the unique keys of all jobs; false if there are none
--   groups: has the valid keys of groups, each with true; false if no job has a group
--   entries: a list of the cron entries of jobs; nil if there are none
--   overlaps: whether any of these has a policy for jobs that overlap
--   timed: whether a job may be put into DUE
local function read_request(args, n, now)
  local ids, classes = {}, {}
  local request = {
    args = args, ids = ids, classes = classes, details = {}, keys = {}, uniques = false, groups = false, timed = false,
  }
  local j, read = 1, nil
  while j <= n do
    local id, class = args[4 * j - 2], args[4 * j - 1]
    if args[4 * j] == '' and (class == '1' or class == '0' or class == '2') and id ~= '' and #id <= 200 then
      ids[j], classes[j] = id, class
      j = j + 1
    else
      read = read or read_others
      local after = read(request, n, now, j)
      if not after then
        return nil, invalid('the id, the class or the time of job ' .. j .. ' is not valid')
      end
      j = after
    end
  end
  if not string.find(table.concat(ids), '^[!-z|~]+$') then
    return nil, invalid('an id has other characters than printable ASCII without spaces and braces')
  end
  return request
end

-- Returns what a call finds in the queue. It reads every key before the first write: so a key of the wrong type is an error before anything has changed.
--   withheld, maximum, begins: what read_settings returns
--   largest: the size of the largest record, nil if that isn't known
--   present: by number, whether there is a job with the ID of the call's job
--   idlers: the addresses of the two sessions that have been idle for longest
--   room: how many jobs may be put in
local function read_queue(ids, withheld, maximum, begins)
  local largest = tonumber((string.match(redis.call('HGET', STATS, 'largest') or '', '^%d+$')))
  local present
  if #ids > 1 and not (largest and largest <= 4096) then
    present = {} -- records may be large: they are not read
    for j = 1, #ids do
      present[j] = redis.call('HEXISTS', JOBS, ids[j]) == 1
    end
  else
    present = redis.call('HMGET', JOBS, unpack(ids))
  end
  local idlers = redis.call('ZRANGE', IDLE, '0', '1')
  return {withheld = withheld, maximum = maximum, begins = begins, largest = largest, present = present, idlers = idlers, room = math.huge}
end

-- Puts in new bare jobs, from job j on. Most jobs are such. Returns the number of the first one that isn't. judge_other would do the same.
local function take_bare(request, found, intake, j)
  local args, ids, classes, details, present, room = request.args, request.ids, request.classes, request.details, found.present, found.room
  local outcomes, records, seen, fresh, longest = intake.outcomes, intake.records, intake.seen, intake.fresh, intake.longest
  local current, head, list, size -- the class of the last job, with its header, its list, and how many are there
  local n = #ids
  while j <= n do
    local id = ids[j]
    if details[j] or fresh >= room or present[j] or seen[id] then
      break
    end
    local class, envelope = classes[j], args[4 * j + 1]
    if #envelope > longest then
      longest = #envelope
    end
    if class ~= current then
      intake.ready[class] = intake.ready[class] or {}
      current, head, list = class, '\1' .. class .. '\0\0' .. intake.at .. intake.at, intake.ready[class]
      size = #list
    end
    records[2 * fresh + 1], records[2 * fresh + 2] = id, head .. envelope
    fresh, size, seen[id] = fresh + 1, size + 1, '0'
    list[size] = id
    outcomes[j] = '1'
    j = j + 1
  end
  intake.fresh, intake.longest = fresh, longest
  return j
end

-- Reads and judges the jobs of a call, whose arguments args has. bounded says that the queue's maximum counts. skew is how far the caller's own reckoning of
-- the time is ahead of the server's (us), nil if it has none. Returns what it has found out, then what read_queue and new_special say; the last is nil if all
-- jobs are bare and new. Or returns nil and an error.
--   now, at: the time (us), and the same in eight bytes
--   outcomes: by number, the outcomes of the jobs
--   records: IDs and records of the jobs that are put in, in turns
--   ready: by class, the IDs of those that go into the ready list; nil if there are none
--   seen: by ID, the state of a job that is put in: '0', or 's' if it is due later
--   fresh: how many are put in
--   longest: the size of the largest of their records without its header, and no less than what fits into 4096 bytes
local function judge_call(args, n, protocol, bounded, skew)
  local withheld, _, maximum, begins = read_settings(SETTINGS, STATS, protocol)
  if tonumber(withheld) then
    return nil, other_layout(withheld, protocol)
  end
  local now = clock()
  local request, fault = read_request(args, n, now)
  if not request then
    return nil, fault
  end
  local found, special = read_queue(request.ids, withheld, maximum, begins), nil
  if request.uniques or request.groups or request.timed then
    special, fault = read_special(request, now + (skew or 0), skew ~= nil)
    if fault then
      return nil, fault
    end
  end
  if maximum and bounded then
    found.room = maximum - queue_length()
  end
  if special and special.uniques then
    find_holders(special.uniques)
  end
  local intake = {now = now, at = eight_bytes(now), outcomes = {}, records = {}, ready = {}, seen = {}, fresh = 0, longest = 4076}
  local present, details, j, judge = found.present, request.details, 1, nil
  while j <= n do
    local first, kind = j, not present[j] and (details[j] or 'p')
    if kind == 'p' then
      j = take_bare(request, found, intake, j)
    elseif kind == 'u' then
      j = take_with_keys(special.uniques, request, found, intake, j)
    elseif kind == 'g' then
      j = take_in_groups(special.lines, request, found, intake, j)
    end
    if j == first then
      special, judge = special or new_special(), judge or judge_other
      judge(request, found, intake, special, j)
      j = j + 1
    end
  end
  return intake, found, special
end

-- Writes what judge_call has found out. Redis refuses the first write if it is out of memory. A job's ID is written before its record: workers skip an ID
-- without a record. Returns whether the queue had no job before, or was removed: only if jobs are put in.
local function write_call(found, intake, special)
  local fresh, marked, woken, first = intake.fresh, special and special.cron and special.cron.marked, false, false
  local lists, pushes = {['0'] = HIGH, ['1'] = NORMAL, ['2'] = LOW}, 0
  for class in pairs(intake.ready) do
    pushes = pushes + 1
    if pushes > 1 then -- the first one is the first write
      redis.call('LLEN', lists[class])
    end
  end
  if special and special.replaced then
    redis.call('HLEN', NOTES)
  end
  begin(SETTINGS, STATS, found.begins and (fresh > 0 or marked))
  if fresh > 0 then
    for class, ids in pairs(intake.ready) do
      woken = make_ready(lists[class], ids, false, found.withheld)
    end
    if special then
      woken = put_special(found, intake, special, woken)
    end
    redis.call('HSET', JOBS, unpack(intake.records))
    if woken and found.idlers[1] then
      wake_one(IDLE, nil, found.idlers)
    end
    first = note_change('enqueued', fresh) == fresh -- these are the first jobs: the queue is new, or was removed
    local largest, longest = found.largest, intake.longest + 20
    if not largest and redis.call('HLEN', JOBS) > fresh then
      longest = math.max(longest, largest_possible) -- another program put the other records in
    end
    if not largest or longest > largest then
      redis.call('HSET', STATS, 'largest', digits(longest)) -- claims use it to limit their replies
      found.largest = longest
    end
  end
  if special and special.uniques and special.uniques.updated then
    update_waiting(special.uniques.updated, intake.now, found.largest)
  end
  if marked then
    redis.call('HSET', CRON, unpack(marked))
  end
  return first
end
