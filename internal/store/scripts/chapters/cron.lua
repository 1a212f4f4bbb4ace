-- Entries of schedulers.

-- Returns the digest of a cron entry's description, or nil, whether a scheduler has said within patience (us) that it has the entry, and
-- the plan of the description or ''. seen is the entry's field 'seen:'.
local function holder_of(seen, now, patience)
  local us, digest, plan = string.match(seen or '', '^(%d+) (%x+) ?(%x*)$')
  return digest, us and math.abs(now - tonumber(us)) <= patience, plan
end

-- Returns an object for the cron entries of a call that puts jobs in, or nil and an error. It has
--   reckoned: the time by which ticks go (us); reckons: whether it is the caller's own
--   marks: by name, the last tick of the entry (us), -1 if there was none
--   plans, since: by name, the plan in force, and since when (us); nil if none is
--   paused: by name, whether the entry is paused
--   jobs: by name, the IDs of the entry's newest jobs with spaces between, the newest first; read if overlaps is set
--   marked: a list of fields and values for CRON; false if there are none
local function entries_of_call(names, overlaps, reckoned, reckons)
  local cron = {reckoned = reckoned, reckons = reckons, marks = {}, plans = {}, since = {}, paused = {}, jobs = {}, marked = false}
  local fields = {}
  local function prefixed(prefix)
    for i = 1, #names do
      fields[i] = prefix .. names[i]
    end
    return unpack(fields)
  end
  local marks = redis.call('HMGET', CRON, unpack(names))
  local plans = redis.call('HMGET', CRON, prefixed('plan '))
  local pauses = redis.call('HMGET', SETTINGS, prefixed('cron:'))
  for i, name in ipairs(names) do
    local plan, since = string.match(plans[i] or '', '^(%x+) (%d+) ')
    cron.plans[name], cron.since[name], cron.paused[name] = plan, tonumber(since), pauses[i]
    cron.marks[name] = tonumber(marks[i] or -1)
    if not cron.marks[name] then
      return nil, invalid('the last tick of a cron entry is no number: is another program writing to this queue?')
    end
  end
  if overlaps then
    for i, list in ipairs(redis.call('HMGET', CRON, prefixed('jobs '))) do
      cron.jobs[names[i]] = list or ''
    end
  end

  -- Returns the outcome for a tick whose job is not to be put in, or nil if nobody enqueued the tick before; and whether the last tick of its entry is ahead by
  -- so much that it is ignored. Such a tick becomes the last one of its entry, also if the entry is paused: then the outcome is 'p'. A tick that is to be
  -- made up for must be of the plan in force, and come after that began.
  function cron.judge(entry, us)
    local name, reckoned = entry.name, cron.reckoned
    local mark, plan = cron.marks[name], cron.plans[name]
    local ahead = cron.reckons and mark > reckoned + 10000000
    if us > reckoned then
      return 'e', ahead
    elseif entry.plan and plan and entry.plan ~= plan then
      return 'x', ahead
    elseif us <= mark and not ahead then
      return 't', ahead
    elseif us < reckoned - 5000000 and not (entry.plan and plan and us > cron.since[name] and us >= reckoned - entry.late) then
      return 'l', ahead
    end
    cron.marks[name] = us
    cron.marked = appended(cron.marked, name, digits(us))
    return cron.paused[name] and 'p' or nil, ahead
  end

  -- Reports whether a live job of an entry leaves no room for one more in the line of its serial group: it has not begun, or is not in that group. One that
  -- has begun is in neither of the places where jobs wait for their turn.
  local function keeps_turn(id, group)
    local record = redis.call('HGET', JOBS, id)
    return not record or group_of(record) ~= group
      or redis.call('ZSCORE', LINED, line_of(record, group, id))
      or redis.call('ZSCORE', DUE, later_class(string.sub(record, 2, 2)) .. id)
  end

  -- Returns 'o' if a job of an entry is left out by the entry's policy for jobs that overlap, as others of the entry are live: with 's' if any is, with 'q'
  -- if one keeps the turn of the job's group. Else returns nil, and the job stands in front of those that are live, at most eight in all, if it is new.
  -- ended is what terminal_states returns, seen has the jobs that the call puts in.
  function cron.judge_overlap(ended, seen, entry, id, group, new)
    local live, stays_out = {}, false
    for other in string.gmatch(cron.jobs[entry.name], '[!-z|~]+') do
      local gone = not seen[other] and redis.call('HEXISTS', JOBS, other) == 0
      for _, state in pairs(ended) do
        gone = gone or redis.call('ZSCORE', state.set, other)
      end
      if not gone then
        live[#live + 1] = other
        stays_out = stays_out or entry.overlap == 's' or entry.overlap == 'q' and (seen[other] or keeps_turn(other, group))
      end
    end
    if stays_out then
      return 'o'
    elseif new then
      table.insert(live, 1, id)
      cron.jobs[entry.name] = table.concat(live, ' ', 1, math.min(#live, 8))
      cron.marked = appended(cron.marked, 'jobs ' .. entry.name, cron.jobs[entry.name])
    end
  end

  return cron
end
