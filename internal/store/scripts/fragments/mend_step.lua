-- A step of mend.lua: does one step of a repair, with the values a and b. Those that are about the queue look first whether it is still so.
-- They count as done if all is already as they would have it: the call may have been sent before, and its reply was lost.
if verb == 'list' then -- class; 'head' for the head of the list
  woken = ready(lists[a], {id}, b == 'head', held_back) or woken
elseif verb == 'unlist' then -- class, how many times as LREM takes it
  redis.call('LREM', lists[a], b, id)
elseif verb == 'line' or verb == 'unline' then -- a job of a group comes into its line, or leaves it
  -- include: lines
  local record = redis.call('HGET', JOBS, id)
  local key = record and group_of(record)
  did = key ~= nil and key ~= false
  if did then
    g = g or lines()
    g.load({key})
    if verb == 'line' then
      woken = g.join({line_of(record, key, id)}) and held_back == '' or woken
    else
      g.quit(line_of(record, key, id))
    end
  end
elseif verb == 'group' then -- key; said and right number of jobs that hold it, or ''
  -- include: lines, mend_group
elseif verb == 'unlined' then -- member of LINED that isn't the place of a job
  -- include: stray_in_line
  did = stray_in_line(a)
  if did then
    redis.call('ZREM', LINED, a)
  end
elseif verb == 'unturned' then -- member of TURNS that can't be a line
  did = not string.find(a, '^[012][sg].')
  if did then
    redis.call('ZREM', TURNS, a)
  end
elseif verb == 'ungrouped' then -- field of GROUPS that can't be the key of a group
  did = not string.find(a, '^[sg].')
  if did then
    redis.call('HDEL', GROUPS, a)
  end
elseif verb == 'due' then -- class, time in us
  redis.call('ZADD', DUE, b, a .. id)
  woken = woken or held_back == ''
elseif verb == 'undue' then -- class
  redis.call('ZREM', DUE, a .. id)
elseif verb == 'expires' then -- when the job expires, in us; '' for never
  if a == '' then
    redis.call('ZREM', EXPIRES, id)
  else
    redis.call('ZADD', EXPIRES, a, id)
    woken = true
  end
elseif verb == 'hold' then -- session, what it is to hold
  local k = sessions[a]
  redis.call('HSET', KEYS[k], id, b)
  recount(a, sessions)
elseif verb == 'unhold' then -- session
  local k = sessions[a]
  redis.call('HDEL', KEYS[k], id)
  recount(a, sessions)
elseif verb == 'unend' then -- state
  forget(terminal[a], id, redis.call('HSTRLEN', JOBS, id))
elseif verb == 'unnote' then
  redis.call('HDEL', NOTES, id)
elseif verb == 'mark' then -- the mark
  redis.call('HSET', CANCELS, id, a)
elseif verb == 'unmark' then
  redis.call('HDEL', CANCELS, id)
elseif verb == 'largest' then -- bytes
  did = not largest or (tonumber(largest) or 0) < tonumber(a)
  if did then
    redis.call('HSET', STATS, 'largest', a)
  end
elseif verb == 'fence' then -- token
  did = (tonumber(fence or '0') or 0) < tonumber(a)
  if did then
    redis.call('SET', FENCE, a)
  end
elseif verb == 'count' then -- session that is counted wrong for the queue's limit of running jobs
  woken = recount(a, sessions) and held_back == '' or woken -- a job that waits may run now
elseif verb == 'open' then -- session with deliveries that isn't registered: it is as one that has expired now
  local k = sessions[a]
  did = k and redis.call('HLEN', KEYS[k]) > 0
  if did and not redis.call('ZSCORE', SESSIONS, a) then
    redis.call('ZADD', SESSIONS, digits(now), a)
    woken = true
  end
elseif verb == 'idle' then -- address of no session
  did = string.sub(a, 2, #channels + 1) ~= channels or not redis.call('ZSCORE', SESSIONS, string.sub(a, #channels + 2))
  if did then
    redis.call('ZREM', IDLE, a)
  end
elseif verb == 'odd' then -- member of DUE without a class or an ID
  did = #a < 2 or not lists[string.sub(a, 1, 1)]
  if did then
    redis.call('ZREM', DUE, a)
  end
elseif verb == 'key' then -- scope, unique key: the job gets it, if nobody has it
  did = redis.call('HEXISTS', UNIQUE, b) == 0
  if did then
    redis.call('HSET', UNIQUE, b, a .. ' ' .. id)
  end
elseif verb == 'unkey' then -- unique key, and what UNIQUE has for it
  did = redis.call('HGET', UNIQUE, a) == b and key_fault(a, b)
  if did then
    redis.call('HDEL', UNIQUE, a)
    redis.call('ZREM', WINDOWS, a)
  end
elseif verb == 'bytes' then -- state; counter, members and deaths that it was found with, as sum.lua returns them, and the right counter
  local counter, members, ended, right = string.match(b, '^(%S*) (%d+) (%S*) (%d+)$')
  local state = terminal[a]
  local counted = redis.call('HGET', STATS, state.bytes) or ''
  did = right and (counter == counted or right == counted) and tonumber(members) == redis.call('ZCARD', state.set)
    and ended == (redis.call('HGET', STATS, a) or '')
  if did then
    redis.call('HSET', STATS, state.bytes, right)
  end
end
