-- How long jobs are kept that have ended.
--
-- The set of a terminal state has its jobs in the order in which they go. A score says when, in one of two ways:
--   a number that isn't negative is the time (us) when the job ended. The queue's limits of age, number and bytes drop it.
--   a negative one is of a job whose record says how long it is kept, see own_age. It is the time when the job is dropped, less own_shift. Such a job stands
--   before all of the others, so that the first of either kind is found at once. Number and bytes drop it if none of the others is left.
-- Decision 45 says why there is no index of such jobs beside the set.

-- 2^52 (us): a time less this is negative until the year 2112.
local own_shift = 4503599627370496

-- How long receipts of moves are kept (us): 30 days.
local receipt_age = 2592000000000

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

-- Returns the job of a terminal state that goes next, and whether its time is over; or nil if there is none. Of those with a time of their own the first
-- goes when that is over. Before it is, the others go: the oldest first, whose time is over at an age (us).
local function next_to_go(state, age, now)
  local first = redis.call('ZRANGE', state.set, 0, 0, 'WITHSCORES')
  local score = tonumber(first[2])
  local over = score and score + (score < 0 and own_shift or age) <= now
  if score and score < 0 and not over then
    local other = redis.call('ZRANGE', state.set, 0, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    if other[1] then
      return other[1], tonumber(other[2]) + age <= now
    end
  end
  return first[1], over
end

-- Drops jobs of a terminal state, at most most of them, in the order of next_to_go: those whose time is over, and further ones while the jobs exceed limits in
-- number or bytes. bytes is the number of bytes that all have. Returns how many jobs were dropped.
local function trim(state, bytes, limits, now, most)
  local kept = redis.call('ZCARD', state.set)
  for dropped = 0, most - 1 do
    local id, over = next_to_go(state, limits[3], now)
    if not id or not over and kept <= limits[1] and bytes <= limits[2] then
      return dropped
    end
    local size = redis.call('HSTRLEN', JOBS, id)
    redis.call('HDEL', JOBS, id) -- permitted out of memory, and with it what follows
    bytes, kept = forget(state, id, size), kept - 1
  end
  return most
end

-- Keeps a job in a terminal state. Its id goes into the state's set. now (us) isn't negative, and own is what own_age returns for the job: the score
-- follows from them, see the head of this chapter. The job's record stays in jobs; record replaces it, if there is one. Then drops jobs beyond
-- limits: at most 100, and at most 2 once a call has dropped 500 by these limits. So a call that ends many jobs takes no longer after the
-- limits were lowered. Returns how many were dropped.
local function retain(state, id, record, own, limits, now)
  redis.call('ZADD', state.set, digits(own and now + own - own_shift or now), id)
  if record then
    redis.call('HSET', JOBS, id, record)
  end
  local bytes = count_up(STATS, state.bytes, redis.call('HSTRLEN', JOBS, id))
  local before = limits.dropped or 0
  local dropped = trim(state, bytes, limits, now, before < 500 and 100 or 2)
  limits.dropped = before + dropped
  return dropped
end

-- Returns when a job ended (us) that has this score in the set of a terminal state.
local function ended_at(score, record)
  return score >= 0 and score or score + own_shift - (own_age(record) or 0)
end

-- Drops receipts of moves that are older than 30 days, at most most of them. Returns how many.
local function drop_receipts(now, most)
  local old = redis.call('ZRANGE', RECEIPTS, '-inf', digits(math.max(now - receipt_age, 0)), 'BYSCORE', 'LIMIT', 0, most)
  if #old > 0 then
    redis.call('ZREM', RECEIPTS, unpack(old))
  end
  return #old
end
