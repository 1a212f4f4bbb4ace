-- Jobs are put in that aren't bare: what has been collected for them is written.

-- Writes what other than bare jobs need besides their records. Returns whether to wake a worker; woken says whether that is so already.
local function put_special(found, intake, special, woken)
  local lines = special.lines
  if lines and #lines.members > 0 then
    woken = put_lines(lines) and found.withheld == '' or woken
  end
  if special.due then
    redis.call('ZADD', DUE, unpack(special.due))
    local head, before = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES'), special.earliest[2]
    woken = woken or not before or tonumber(head[2]) < tonumber(before)
  end
  if special.expires then
    redis.call('ZADD', EXPIRES, unpack(special.expires))
    woken = woken or intake.seen[redis.call('ZRANGE', EXPIRES, 0, 0)[1]] ~= nil -- somebody must know the time
  end
  for _, old in ipairs(special.replaced or {}) do
    local id, state, bytes = unpack(old)
    forget(state, id, bytes)
    redis.call('HDEL', NOTES, id)
  end
  if special.uniques then
    put_keys(special.uniques, intake.now)
  end
  return woken
end

-- Gives jobs that wait for their start what others of their unique keys have: updates is what meet_key has collected.
local function update_waiting(updates, now, largest)
  -- Returns what a job has that waits for its start and gets what others have:
  --   record: its record, which changes
  --   was: the member of DUE if it is scheduled
  --   at: when it is due (us), nil if it is not scheduled
  --   member: its member of DUE from now on, nil if it is not scheduled
  --   expires: when it expired before (us), nil if never
  local function waiting_job(id)
    local record = redis.call('HGET', JOBS, id)
    local was = due_member(record, id)
    local at = tonumber(redis.call('ZSCORE', DUE, was) or nil)
    return {record = record, was = was, at = at, member = at and was, expires = expiry_of(record)}
  end

  -- Gives a job that waits what another one has. A scheduled job gets all, and goes on waiting since when it was enqueued. One that is ready gets the envelope,
  -- and stays where it is: so does one of a flow, whose links must stay. So does the time of a throttled one.
  local function update_job(job, id, with)
    local old, detail = job.record, with.detail
    if not job.member or string.byte(old, 4) % 128 >= 64 then
      job.record = detail.version .. string.sub(old, 2, 22 + string.byte(old, 21) * 256 + string.byte(old, 22)) .. with.envelope
      return
    end
    if detail.scope == 's' then
      job.at = math.max(detail.us or now, now)
    end
    local enqueued = 0
    for i = 5, 12 do
      enqueued = enqueued * 256 + string.byte(old, i)
    end
    job.at = math.min(job.at, math.max(enqueued + detail.update, now))
    job.record = record_of(detail, with.class, string.sub(old, 5, 12), eight_bytes(job.at), with.envelope)
    job.member = due_member(job.record, id)
  end

  -- Writes jobs that have been updated, which are in order, with their IDs in ids.
  local function write_updates(jobs, ids)
    local records, left, added, expiries, first, size = {}, {}, {}, {}, {}, largest or largest_possible -- as in write_call; first: the members that are added
    for i, id in ipairs(ids) do
      local job = jobs[id]
      records[2 * i - 1], records[2 * i] = id, job.record
      size = math.max(size, #job.record)
      if job.member then
        if job.member ~= job.was then
          left[#left + 1] = job.was
        end
        appended(added, digits(job.at), job.member)
        first[job.member] = true
        local expires = expiry_of(job.record)
        if expires then
          appended(expiries, digits(expires), id)
        elseif job.expires then
          redis.call('ZREM', EXPIRES, id)
        end
      end
    end
    redis.call('HSET', JOBS, unpack(records))
    if #left > 0 then
      redis.call('ZREM', DUE, unpack(left))
    end
    if size ~= largest then
      redis.call('HSET', STATS, 'largest', digits(size))
    end
    if #added > 0 then
      redis.call('ZADD', DUE, unpack(added))
      local woken = first[redis.call('ZRANGE', DUE, 0, 0)[1]]
      if #expiries > 0 then
        redis.call('ZADD', EXPIRES, unpack(expiries))
        woken = woken or jobs[redis.call('ZRANGE', EXPIRES, 0, 0)[1]] -- somebody must know the time
      end
      if woken then
        wake_one(IDLE)
      end
    end
  end

  local jobs, ids = {}, {}
  for _, with in ipairs(updates) do
    local id = with.id
    if not jobs[id] then
      jobs[id], ids[#ids + 1] = waiting_job(id), id
    end
    update_job(jobs[id], id, with)
  end
  write_updates(jobs, ids)
end
