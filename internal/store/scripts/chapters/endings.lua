-- A job ends.

-- Returns what finish needs to know, as it says. noted says whether there are notes that NOTES hasn't yet. The limits are texts: those for what the settings don't have.
local function new_ends(now, noted, keep_jobs, keep_bytes, keep_us)
  return {now = now, noted = redis.call('HLEN', NOTES) > 0 or noted, usual = {tonumber(keep_jobs), tonumber(keep_bytes), tonumber(keep_us)}}
end

-- Tells those who wait for the end of a job that it has ended, or was deleted: a message that says to look. It goes over a sharded channel, which in a Cluster only the nodes of the
-- queue's slot hear of. A server that has none gets it over another.
local function tell_end(id)
  if not send(string.format('s%s:%s', JOBS, id), 'look') then -- a channel with the name of the key, and of the job
    send(string.format('p%s:%s', JOBS, id), 'look')
  end
end

-- Ends jobs, in the one place where jobs end. ends is what a call knows of it:
--   now: the time (us)
--   usual: the retention if the queue's settings have none, as retention is given it
--   limits: what retention_of returns, once it was needed
--   kept: what keeps returns, or false; it is read when it is needed
--   own: bounds of completed jobs that say themselves how long they are kept, if the queue keeps none
--   noted: whether notes may be kept of jobs
--   linked, noted_ends, flows, touched, handled: what is noted for flows, see the chapters flow_links and flows
--   late, told: what expire adds for the reply: ids and records of jobs that have expired; how long these records were
-- Completed jobs are deleted, and those that somebody deletes. For another state ids has one id: the job is kept, with its record replaced by another unless
-- that is nil. So is a completed one for which bounds says how many of them are kept. Three exceptions: a job whose record says that it isn't to be kept is
-- deleted in any state, and with the bounds 'unkept' every job is. A job whose record is missing ends as completed, and is not counted.
--
-- Those who wait for a job's end are told if it is kept, somebody has deleted it, or it ended with its flow. What flows are to know of a job is noted here if
-- its record is kept, else by the caller. Returns how many older jobs were dropped for it, or nil. Take the ids out of INFLIGHT afterwards: a user who isn't
-- permitted a command loses no job then.
local function finish(ends, state, ids, record, bounds)
  local n, dropped = 1, nil
  local gone, own = state == 'completed' and not bounds or state == 'deleted' or bounds == 'unkept', nil
  if not gone then
    local text = record or redis.call('HGET', JOBS, ids[1]) or ''
    own = own_age(text)
    if (byte_at(text, 4) or 0) % 128 >= 64 then
      record = note_kept_end(ends, state, ids[1], text)
    end
  end
  if gone or own == 0 then
    n = redis.call('HDEL', JOBS, unpack(ids))
    dropped = own
    if state == 'deleted' or bounds == 'unkept' then
      tell_end(ids[1])
    end
  else
    local limits = bounds or retention_of(ends)
    dropped = retain(terminal_states()[state], ids[1], record, own, limits, ends.now)
    tell_end(ids[1])
    if state == 'dead' and limits[4] then
      redis.call('HSET', NOTES, 'dead ' .. ids[1], digits(ends.now)) -- until a worker has copied the job
    end
  end
  if ends.noted then
    redis.call('HDEL', NOTES, unpack(ids))
  end
  if n > 0 then
    note_change(state, n)
  end
  return dropped
end

