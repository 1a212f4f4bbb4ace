-- How long jobs are kept that have ended.

-- Returns what a setting says is kept: {most jobs, most bytes, how long in us}, or nil if it can't be read or isn't set.
local function kept_of(text)
  local jobs, bytes, us = string.match(text or '', '^([1-9]%d*) ([1-9]%d*) ([1-9]%d*)$')
  return us and #jobs <= 15 and #bytes <= 15 and #us <= 15 and {tonumber(jobs), tonumber(bytes), tonumber(us)} or nil
end

-- Returns how many terminal jobs of each state a queue keeps, in the form of kept_of. The limits apply to dead and to cancelled jobs separately. If the
-- queue's settings don't say it, they are usual, a list of the same form. The fourth value says whether dead jobs are to be copied to another queue.
local function retention(settings, usual)
  local keep, copies = unpack(redis.call('HMGET', settings, 'keep', 'copy_dead'))
  local jobs, bytes, us = unpack(kept_of(keep) or usual, 1, 3)
  return {jobs, bytes, us, copies and #copies <= 200 and string.find(copies, '^[!-z|~]+$') ~= nil} -- '{off}' is no name
end

-- Returns the retention of a call, as retention does. ends is what new_ends returns; it is read once.
local function retention_of(ends)
  ends.limits = ends.limits or retention(SETTINGS, ends.usual)
  return ends.limits
end

-- Returns how many completed jobs a queue keeps, in the form of kept_of, or nil if it keeps none.
local function keeps(settings)
  return kept_of(redis.call('HGET', settings, 'keep_completed'))
end

-- Removes an id from a terminal state, and its bytes from the state's counter. Returns how many bytes are left.
local function forget(state, id, bytes)
  redis.call('ZREM', state.set, id)
  return count_up(STATS, state.bytes, 0 - bytes) -- of 0 bytes -bytes is "-0", which is no integer
end

-- Drops jobs of a terminal state, at most most of them: those whose own time has come, and the oldest of the others while the jobs exceed
-- limits: their number, their bytes or their age. If no others are left, number and bytes drop those with a time of their own, in the order of
-- these times. bytes is the number of bytes that all have. Returns how many jobs were dropped.
local function trim(state, bytes, limits, now, most)
  local kept = redis.call('ZCARD', state.set)
  for dropped = 0, most - 1 do
    local oldest = redis.call('ZRANGE', state.set, 0, 0, 'WITHSCORES')
    local score = tonumber(oldest[2])
    local due = score and score < 0 and score + 4503599627370496 <= now
    if score and score < 0 and not due then -- a time of its own, which hasn't come: see retain
      local other = redis.call('ZRANGE', state.set, 0, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
      if other[1] then
        oldest, score = other, tonumber(other[2])
      end
    end
    due = due or score and score >= 0 and score <= now - limits[3]
    if not score or not due and kept <= limits[1] and bytes <= limits[2] then
      return dropped
    end
    local size = redis.call('HSTRLEN', JOBS, oldest[1])
    redis.call('HDEL', JOBS, oldest[1]) -- permitted out of memory, and with it what follows
    bytes = forget(state, oldest[1], size)
    kept = kept - 1
  end
  return most
end

-- Keeps a job in a terminal state. Its id goes into the state's sorted set, scored by the time. own is what own_age returns for the job. If it
-- isn't nil, the score is the time when the job is to be dropped, less 2^52: a negative number until the year 2112. So these jobs stand before the
-- others, in the order in which they are dropped. The job's record stays in jobs; record replaces it, if there is one. Then drops the oldest jobs
-- beyond limits: at most 100, and at most 2 once a call has dropped 500 by these limits. So a call that ends many jobs takes no longer after the
-- limits were lowered. Returns how many were dropped.
local function retain(state, id, record, own, limits, now)
  redis.call('ZADD', state.set, digits(own and now + own - 4503599627370496 or now), id)
  if record then
    redis.call('HSET', JOBS, id, record)
  end
  local bytes = count_up(STATS, state.bytes, redis.call('HSTRLEN', JOBS, id))
  local before = limits.dropped or 0
  local dropped = trim(state, bytes, limits, now, before < 500 and 100 or 2)
  limits.dropped = before + dropped
  return dropped
end

-- Returns when a job ended (us). score is that of the job in the set of a terminal state. See retain.
local function ended_at(score, record)
  if score >= 0 then
    return score
  end
  return score + 4503599627370496 - (own_age(record) or 0)
end

-- Drops receipts of moves that are older than 30 days, at most most of them. Returns how many.
local function drop_receipts(now, most)
  local old = redis.call('ZRANGE', RECEIPTS, '-inf', digits(math.max(now - 2592000000000, 0)), 'BYSCORE', 'LIMIT', 0, most)
  if #old > 0 then
    redis.call('ZREM', RECEIPTS, unpack(old))
  end
  return #old
end
