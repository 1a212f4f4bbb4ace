-- What is in a queue that counts, so that the queue may not be removed. remove.lua says what the reasons are.

-- Adds a reason: what it is, and a detail.
local function against(reasons, what, detail)
  reasons[#reasons + 1] = what
  reasons[#reasons + 1] = type(detail) == 'number' and digits(detail) or detail
end

-- Adds how many jobs there are. IDs without a record are in lists, sets and marks what workers pass over.
local function jobs_against(reasons)
  local live = redis.call('HLEN', JOBS)
  local terminal = terminal_states()
  for _, name in ipairs({'dead', 'cancelled', 'completed'}) do
    local state = terminal[name]
    local ended = redis.call('ZCARD', state.set)
    if ended > 0 then
      against(reasons, name, ended)
      live = live - ended
    end
  end
  if live > 0 then
    against(reasons, 'live', live)
  end
end

-- Adds sessions that aren't over. If no job is left, nothing is to be taken back of one that is.
local function sessions_against(reasons, now)
  for _, session in ipairs(redis.call('ZRANGE', SESSIONS, '(' .. digits(now), '+inf', 'BYSCORE', 'LIMIT', 0, 10)) do
    against(reasons, 'session', session)
  end
end

-- Adds what the queue knows of the past, but for cron entries: without that something would happen again. token is the last one that was granted.
local function past_against(reasons, now, token)
  local reported = redis.call('HLEN', OUTBOXES)
  if reported > 0 then
    against(reasons, 'outbox', reported)
  end
  local window = redis.call('ZRANGE', WINDOWS, 0, 0, 'REV', 'WITHSCORES')
  if window[2] and tonumber(window[2]) > now then
    against(reasons, 'unique', tonumber(window[2]))
  end
  local receipt = redis.call('ZRANGE', RECEIPTS, 0, 0, 'REV', 'WITHSCORES')
  if receipt[2] and tonumber(receipt[2]) + receipt_age > now then -- as drop_receipts has it
    against(reasons, 'receipt', tonumber(receipt[2]) + receipt_age)
  end
  local flows = redis.call('HLEN', FLOWS)
  if flows > 0 then
    against(reasons, 'flow', flows) -- a batch of that ID would be made again
  end
  if token > now then
    against(reasons, 'fence', math.min(token, 9007199254740991)) -- tokens would go back
  end
end

-- Settings that people and workers make.
local made_settings = {
  keep = true, keep_completed = true, copy_dead = true, limits = true, group_limits = true, max_length = true, slots = true,
}

-- Adds what the settings have. Those that people and workers make count unless loose is set. Returns how many cron entries are paused.
local function settings_against(reasons, now, loose)
  local entries, settings = 0, redis.call('HGETALL', SETTINGS)
  for i = 1, #settings, 2 do
    local field, value = settings[i], settings[i + 1]
    local worker = string.match(field, '^quiet:(.*)$')
    if field == 'paused' then
      against(reasons, 'paused', value)
    elseif worker then
      local since = tonumber((string.match(value, '(%d+)$')))
      if since and now - since <= 86400000000 then -- later it is forgotten, as the worker has died
        against(reasons, 'quiet', worker)
      end
    elseif string.find(field, '^cron:') then
      entries = entries + 1
    elseif made_settings[field] then
      if not loose then
        against(reasons, 'setting', field)
      end
    elseif field ~= 'layout' and field ~= 'changes' and field ~= 'limits_of' and not string.find(field, '^of ') then -- what is remembered of settings keeps no queue
      against(reasons, 'unknown', field)
    end
  end
  return entries
end

-- Adds the groups that are paused, and whether groups have limits of their own, which counts unless loose is set.
local function groups_against(reasons, loose)
  local own, paused = 0, 0
  local limits = redis.call('HGETALL', LIMITS)
  for i = 1, #limits, 2 do
    local kind = string.sub(limits[i], 1, 1)
    if kind == 'g' then
      own = own + 1
    elseif kind == 'p' then
      paused = paused + 1
    elseif kind ~= 'h' and kind ~= 'd' and kind ~= 'o' then -- by which job something is held back; RATES says whether it is. Which job waits for a rate; if it is there it counts above
      against(reasons, 'unknown', limits[i])
    end
  end
  if paused > 0 then
    against(reasons, 'group', paused)
  end
  if own > 0 and not loose then
    against(reasons, 'setting', 'limits of groups')
  end
end

-- Adds until when jobs are held back, or a rate counts those that have started.
local function rates_against(reasons, now)
  local held_until, rated
  local ahead = redis.call('ZRANGE', RATES, '+inf', '(' .. digits(limits_clock(now)), 'BYSCORE', 'REV', 'LIMIT', 0, 100, 'WITHSCORES')
  for i = 1, #ahead, 2 do
    if string.sub(ahead[i], 1, 1) == 'h' then
      held_until = held_until or tonumber(ahead[i + 1])
    else
      rated = rated or tonumber(ahead[i + 1])
    end
  end
  if held_until then
    against(reasons, 'held', held_until)
  end
  if rated then
    against(reasons, 'rate', rated)
  end
end

-- Adds the last use that Redis knows of, if it is no longer ago than unused (us). Workers note it each time that they renew their sessions.
local function use_against(reasons, now, token, unused)
  local last = tonumber((string.match(redis.call('HGET', HISTORY, 'last') or '', '^(%d+) '))) or 0
  local used = math.max(token <= now and token or 0, last <= now and last or 0)
  if used > now - unused then
    against(reasons, 'used', used)
  end
end
