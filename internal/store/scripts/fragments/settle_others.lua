-- include: redue

-- A step of claim.lua: settles the deliveries that didn't just complete. Each goes to its new place before it leaves the session,
-- so that a user who isn't permitted a command loses no job.
local ended = {}
for k = 1, n do
  ended[settled[k]] = true
end
for k = 1, #overruled do
  ended[marked[k]] = true
end
local j = completed
for i = others, #ARGV, 6 do
  j = j + 1
  local id, token, outcome, class, delay, record = unpack(ARGV, i, i + 5)
  if ended[id] or not owns(j, token) then
    refused[#refused + 1] = j
  elseif marks and marks[id] then
    -- include: finish_marked, group_held
    left[#left + 1] = group_held(held[j])
    ended[id] = true
    if outcome ~= 'cancelled' then
      overruled[#overruled + 1] = j
    end
    finish_marked(id, marks[id], outcome == 'completed', outcome ~= 'completed' and record ~= '' and record or nil)
    redis.call('HDEL', INFLIGHT, id)
  else
    ended[id] = true
    local again = outcome == 'retry' or outcome == 'delay'
    local there = true
    local group -- that it holds
    if g then
      -- include: group_held
      group = group_held(held[j])
    end
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
      if #class > 1 then
        -- include: survive
      end
      if group then
        -- include: put_off
      end
      local at = now + delay
      redis.call('HSET', JOBS, id, redue(record, at))
      grown = math.max(grown, #record)
      redis.call('ZADD', DUE, digits(at), class .. id)
      if at <= now then
        promotable[#promotable + 1] = class .. id
      end
      note(outcome, 1)
    elseif there and outcome == 'return' then
      local list = lists[class] or NORMAL
      local _, length = ready(list, {id}, true, held_back)
      waiting[list] = length
      suspects_ready = suspects_ready or class == 's'
      note(outcome, 1)
    elseif outcome == 'completed' and record then
      -- include: settle_kept
      left[#left + 1] = group
    else
      finish(there and outcome or 'completed', {id}, record)
      left[#left + 1] = group
    end
    redis.call('HDEL', INFLIGHT, id)
  end
end
