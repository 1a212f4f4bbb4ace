-- What a queue's settings say to each call.

-- Returns what the queue's settings allow to a call of a protocol; how many slots each worker should have ('' if that isn't set); and to a worker the
-- limits of the queue and of its groups, and how many jobs it may have that haven't ended, as the settings have them; to another caller only that
-- number (nil if there is none). Last, whether the settings have no layout: the call that first writes to the queue sets it, see begin.
-- The first, which callers name withheld, says why jobs are withheld from the call. It is one of:
--   '': the call may add and take jobs
--   'paused': nobody may take jobs
--   'quiet': this worker may not take jobs
--   'stop': this worker may not take jobs, and is to end
--   the queue's layout, if it is newer than the protocol, or older than 3: the call may only settle jobs that were taken before. A queue that was used
--   but has no layout in settings or stats has layout 1: a program from before the first release used it
-- worker is nil if the caller is no worker.
local function read_settings(settings, stats, protocol, worker)
  local layout, paused, slots, most, own, of_queue, of_groups = unpack(redis.call('HMGET', settings, 'layout', 'paused', 'slots', 'max_length',
    worker and 'quiet:' .. worker or '', worker and 'limits' or '', worker and 'group_limits' or ''))
  local begins = not layout
  if begins and redis.call('EXISTS', settings, stats) > 0 then
    layout = redis.call('HGET', stats, 'layout') or '1'
  end
  if layout and layout ~= protocol then
    -- A text that is no number was written by another program, which knows more than this call.
    local number = string.find(layout, '^%d%d?%d?$') and tonumber(layout) or 999
    if number < 3 or number > tonumber(protocol) then
      return string.format('%d', math.max(number, 1)), ''
    end
  end
  if not worker then
    return paused and 'paused' or '', slots or '', most and tonumber((string.match(most, '^[1-9]%d*$'))) or nil, begins
  end
  return own and string.sub(own, 1, 4) == 'stop' and 'stop' or paused and 'paused' or own and 'quiet' or '', slots or '', of_queue, of_groups, most, begins
end

-- Sets the layout of a queue whose settings have none: the first thing that a call writes to it. begins is what read_settings says. The layout is the oldest that
-- read_settings knows, not the caller's protocol: older programs may use the queue until something is used that they don't know. STATS has the layout, too: so a
-- queue whose settings were deleted or evicted isn't taken for one that an older program has used.
local function begin(settings, stats, begins)
  if begins then
    redis.call('HSET', settings, 'layout', '3')
    redis.call('HSET', stats, 'layout', '3')
  end
end

-- Reads what is remembered of a setting beside its value: the field 'of <setting>'. docs/wire.md has its form. Returns a table with
--   fresh: whether there is no such text
--   at: when the value was set (us), 0 if nobody has set it
--   by: 'worker' or 'operator', a space and a name; 'nobody -' if nobody has set it
--   told: when a worker told a value of its Config last (us), nil if none has
--   values: those that were told, the newest first, each {when it was told first (us), for how long only others were told (us), '*' if it was applied
--   last, else '-', the value}
--   had_at, had_by: what at and by were when it was read
local function memory_of(text)
  local at, by, told, list = string.match(text or '', '^(%d+) (%l+ [!-~]+) (%d+)\n(.*)$')
  local m = {fresh = not text, at = tonumber(at) or 0, by = by or 'nobody -', told = tonumber(told), values = {}}
  m.had_at, m.had_by = m.at, m.by
  for first, age, mark, value in string.gmatch(list or '', '(%d+) (%d+) ([*-]) ([^\n]*)\n') do
    m.values[#m.values + 1] = {tonumber(first), tonumber(age), mark, value}
  end
  if m.told == 0 then
    m.told = nil
  end
  return m
end

-- Returns such a text.
local function memory_text(m)
  local lines = {digits(m.at) .. ' ' .. m.by .. ' ' .. digits(m.told or 0)}
  for i, v in ipairs(m.values) do
    lines[i + 1] = digits(v[1]) .. ' ' .. digits(v[2]) .. ' ' .. v[3] .. ' ' .. v[4]
  end
  return table.concat(lines, '\n') .. '\n'
end

-- For how long a worker that told a value is taken to run on (us).
local heard_for = 180000000

-- Returns the value that counts of those that workers tell: the newest that was told within heard_for. nil if there is none.
local function telling(m)
  for _, v in ipairs(m.values) do
    if v[2] < heard_for then
      return v
    end
  end
end

-- Gives the star to a value, as the one that was applied last; nil: to none.
local function apply(m, value, by, now)
  for _, v in ipairs(m.values) do
    v[3] = v == value and '*' or '-'
  end
  m.at, m.by = now, by
end

-- Notes that a worker tells a value of its Config. Others get older by the time since the last call, and at most by a minute: so an outage makes nothing old.
-- Returns whether anything is to be written. At most eight values stay, and among them the one that was applied last.
local function tell(m, value, now)
  local passed = math.min(math.max(now - (m.told or now), 0), 60000000)
  local mine
  for _, v in ipairs(m.values) do
    if v[4] == value then
      mine = v
    else
      v[2] = math.min(v[2] + passed, heard_for)
    end
  end
  if mine and mine[2] == 0 and m.told and now >= m.told and passed < 10000000 then
    return false -- other workers of the same Config have told it
  end
  if mine then
    mine[2] = 0
  else
    local newest = m.values[1] and m.values[1][1] or 0
    table.insert(m.values, 1, {math.max(now, newest + 1), 0, '-', value})
  end
  m.told = now
  if #m.values > 8 then
    table.remove(m.values, m.values[9][3] == '*' and 8 or 9)
  end
  return true
end

-- Changes what is remembered of a setting. verb is one of:
--   'set': by sets the value
--   'tell': by is a worker whose Config has the value
--   'carry': by takes the value of a Config from elsewhere as told and applied, unless workers tell one here; the setting stays
--   'reset': by takes the value that workers tell, or removes the setting if none was told within three minutes
-- Returns the value that the setting is to have, '' for none, and nil if it stays; then whether what is remembered is to be written.
local function decide(m, verb, value, by, now)
  if verb == 'set' then
    m.at, m.by = now, by
    return value, true
  elseif verb == 'tell' then
    local news = tell(m, value, now)
    local counts = telling(m)
    if counts[3] == '*' then
      return nil, news
    end
    apply(m, counts, by, now)
    return counts[4], true
  elseif verb == 'carry' then
    if m.told then
      return nil, false
    end
    tell(m, value, now)
    m.values[1][3] = '*'
    return nil, true
  end
  local counts = m.told and math.abs(now - m.told) < heard_for and telling(m) or nil
  if not counts then
    m.values, m.told = {}, nil
  end
  apply(m, counts, by, now)
  return counts and counts[4] or '', true
end

-- Reads what is remembered of the limits of one group: the field 'o<group>'. Returns a table as memory_of does, but without told and values, and with
--   config: the limits of a Config that were applied last, '' if none were
local function group_memory(text)
  local at, by, config = string.match(text or '', '^(%d+) (%l+ [!-~]+) (.*)$')
  local m = {fresh = not text, at = tonumber(at) or 0, by = by or 'nobody -', config = config or '', values = {}}
  m.had_at, m.had_by = m.at, m.by
  return m
end

-- Returns such a text.
local function group_memory_text(m)
  return digits(m.at) .. ' ' .. m.by .. ' ' .. m.config
end

-- Changes what is remembered of a group's limits, as decide does. counts says whether what by tells counts.
local function decide_group(m, verb, value, by, now, counts)
  if verb == 'reset' then
    value = m.config
  elseif verb == 'tell' or verb == 'carry' then
    if value == m.config or not counts or verb == 'carry' and m.config ~= '' then
      return nil, false
    end
    m.config = value
    if verb == 'carry' then
      return nil, true
    end
  end
  m.at, m.by = now, by
  return value, true
end

-- Adds a change to those that SETTINGS has: the newest first, at most fifty. '' is no value.
local function log_change(by, field, before, after, now)
  local line = table.concat({digits(now), by, field, before, after}, '\t')
  local kept = {line}
  for old in string.gmatch(redis.call('HGET', SETTINGS, 'changes') or '', '[^\n]+') do
    if #kept < 50 then
      kept[#kept + 1] = old
    end
  end
  redis.call('HSET', SETTINGS, 'changes', table.concat(kept, '\n'))
end

-- Returns what a call says of a setting that workers tell: whether its value is another one than before, whether nothing was remembered of it, its
-- value, when and by whom it was set; what it was before, when and by whom that was set; then the value that counts of those that workers tell.
local function told_reply(after, m, before)
  local counts = telling(m)
  return {after ~= before and 1 or 0, m.fresh and 1 or 0, after, digits(m.at), m.by, before, digits(m.had_at), m.had_by, counts and counts[4] or ''}
end
