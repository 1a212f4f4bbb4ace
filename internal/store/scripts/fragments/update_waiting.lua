-- include: wake_one, due_member, expiry_of

-- A step of enqueue.lua: gives jobs that wait for their start what others of their unique keys have. A scheduled one gets all, and goes on waiting
-- since when it was enqueued. One that is ready gets the envelope, and stays where it is. So does the time of a throttled one.
local changed, order = {}, {} -- by ID: the record, the member of DUE, and what that was; the score; whether it could expire
for _, one in ipairs(updated) do
  local id, j, us = unpack(one)
  local detail, class, envelope, job = details[j], classes[j], args[fixed + 4 * j], changed[id]
  if not job then
    job = {record = redis.call('HGET', JOBS, id)}
    job.was = due_member(job.record, id)
    job.at = tonumber(redis.call('ZSCORE', DUE, job.was) or nil)
    job.member = job.at and job.was
    job.expires = expiry_of(job.record)
    changed[id] = job
    order[#order + 1] = id
  end
  local old = job.record
  if job.member then
    if detail.scope == 's' then
      job.at = math.max(us or now, now)
    end
    if detail.most then
      local enqueued = 0
      for i = 5, 12 do
        enqueued = enqueued * 256 + string.byte(old, i)
      end
      job.at = math.min(job.at, math.max(enqueued + detail.most, now))
    end
    local size = #detail.extras - 2
    job.record = (detail.version or '\1') .. class .. '\0' .. string.sub(detail.extras, 2, 2) .. string.sub(old, 5, 12) .. stamp(job.at)
      .. string.char(math.floor(size / 256), size % 256) .. string.sub(detail.extras, 3) .. envelope
    job.member = due_member(job.record, id)
  else
    job.record = (detail.version or '\1') .. string.sub(old, 2, 22 + string.byte(old, 21) * 256 + string.byte(old, 22)) .. envelope
  end
end
local new, left, added, expiries, size, first = {}, {}, {}, {}, largest or 1049598, {} -- the size as in put_in; first: whether a member of DUE is one of these
for _, id in ipairs(order) do
  local job = changed[id]
  new[#new + 1] = id
  new[#new + 1] = job.record
  size = math.max(size, #job.record)
  if job.member then
    if job.member ~= job.was then
      left[#left + 1] = job.was
    end
    added[#added + 1] = digits(job.at)
    added[#added + 1] = job.member
    first[job.member] = true
    local expires = expiry_of(job.record)
    if expires then
      expiries[#expiries + 1] = digits(expires)
      expiries[#expiries + 1] = id
    elseif job.expires then
      redis.call('ZREM', EXPIRES, id)
    end
  end
end
redis.call('HSET', JOBS, unpack(new))
if #left > 0 then
  redis.call('ZREM', DUE, unpack(left))
end
if size ~= largest then
  largest = size
  redis.call('HSET', STATS, 'largest', digits(size))
end
if #added > 0 then
  redis.call('ZADD', DUE, unpack(added))
  local woken = first[redis.call('ZRANGE', DUE, 0, 0)[1]]
  if #expiries > 0 then
    redis.call('ZADD', EXPIRES, unpack(expiries))
    woken = woken or changed[redis.call('ZRANGE', EXPIRES, 0, 0)[1]] -- somebody must know the time
  end
  if woken then
    wake_one(IDLE)
  end
end
