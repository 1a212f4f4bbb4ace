-- Puts in what another queue knew of the past, beside its jobs: those of a file. What this queue knows that is later stays, so the call may be made again.
--
-- KEYS: as named below; LANE is that of a shard of an outbox, if the kind is 'outbox'; else it is not used. Then in KEYS
--       inflight:<session> of each session, if an item gives a key to a job
-- ARGV: as named below
--       protocol: the newest layout that the caller knows
--       dry: '1': nothing is changed, and the answers are those of a call that changes
--       inflight: what stands before a session in the name of its key, if these keys are there; else ''
--       kind: of what; then for each item, 1 to 250 of them:
--       'outbox', one item: the text of the lane
--       'cron': the entry; its last tick, its plans, and its jobs, as CRON has them; since when it is paused, as SETTINGS has it; its fields 'spec:', 'job:',
--           'seen:' and 'quiet:' of ENTRIES. '' for what is missing
--       'unique': a key, and what UNIQUE has for it: the end of a window, or 't', which goes to a job that is there and waits; a space; the ID of a job
--       'death': the ID of a dead job that is to be copied, and when it died in us
-- Reply: {'ok', time in us, answers}
--        answers: one for each item: 'done', or 'there', if the queue knows the same or something later. A window that is over by
--        this server's clock is 'done', and so is a 't' whose job isn't there, or runs: nothing is to be put in
--        {'again'}  there is a session that isn't in KEYS; nothing was done
-- Errors: those of Redis, 'NOPERM signalbox: ...', 'ERR signalbox: ...', or 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local LANE, SESSIONS, JOBS, STATS, CRON, ENTRIES, DEAD, CANCELLED, NOTES, SETTINGS, COMPLETED, UNIQUE, WINDOWS = unpack(KEYS)
local first_session = 14 -- of KEYS
local fixed = 4 -- arguments before those of the items
local protocol, dry, inflight, kind = unpack(ARGV, 1, fixed)
local width = ({outbox = 1, cron = 9, unique = 2, death = 2})[kind]

local withheld, _, _, begins = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
if inflight ~= '' then
  local _, all = session_keys(first_session, inflight)
  if not all then
    return {'again'}
  end
end
check_keys()
local sessions = {} -- their keys
for k = first_session, #KEYS do
  sessions[#sessions + 1] = KEYS[k]
  redis.call('HLEN', KEYS[k])
end
local now = clock()
local denied = redis.acl_check_cmd and denied_command({{'SET', LANE, ''}, {'HSET', CRON, '', ''}, {'HDEL', CRON, ''}, {'ZADD', WINDOWS, '0', ''}})
if denied then
  return redis.error_reply('NOPERM signalbox: the Redis user may not run ' .. denied .. ', which putting in the past of a queue needs')
end

-- The functions below are for the kinds. Each returns the answer for an item, or nil, and changes nothing unless writes is set.

-- Puts in the last batch of an outbox's shard, unless the queue has one of this number or a later one. Returns nil if the lane can't be read.
local function outbox(writes, _, _, text)
  local last = redis.call('GET', LANE)
  local number = last and tonumber((string.match(last, '^(%d+) ')))
  if last and not number then
    return nil
  end
  if number and number >= tonumber((string.match(text, '^%d+'))) then
    return 'there'
  end
  if writes then
    redis.call('SET', LANE, text)
  end
  return 'done'
end

-- Puts in an entry as a whole, unless the queue has the entry, with the same last tick or a later one. An entry without ticks gives way to one with some.
local function cron(writes, _, _, entry, last, plans, jobs, paused, spec, job, seen, quiet)
  local tick, plan = unpack(redis.call('HMGET', CRON, entry, 'plan ' .. entry))
  local known = tick or plan or redis.call('HGET', ENTRIES, 'spec:' .. entry) or redis.call('HGET', SETTINGS, 'cron:' .. entry)
  if known and (tonumber(last) or 0) <= (tonumber(tick) or 0) then
    return 'there'
  end
  if writes then
    for _, field in ipairs({
      {CRON, entry, last}, {CRON, 'plan ' .. entry, plans}, {CRON, 'jobs ' .. entry, jobs}, {SETTINGS, 'cron:' .. entry, paused},
      {ENTRIES, 'spec:' .. entry, spec}, {ENTRIES, 'job:' .. entry, job}, {ENTRIES, 'seen:' .. entry, seen}, {ENTRIES, 'quiet:' .. entry, quiet},
    }) do
      local list, name, value = unpack(field)
      -- An entry whose jobs can be made by its schedulers only has an empty text for them.
      if value ~= '' or spec ~= '' and string.sub(name, 1, 4) == 'job:' then
        redis.call('HSET', list, name, value)
      else
        redis.call('HDEL', list, name)
      end
    end
  end
  return 'done'
end

-- Gives a key to a job, unless it is in one of the terminal sets or in a session, or to its window, unless another job has it, or a window of it is open.
-- A job that waits for its next delivery may get it: a call that meets it then updates what that delivery does, and with it a window begins.
local function unique(writes, now, sessions, key, value)
  local scope, id = string.match(value, '^(%w+) (.+)$')
  local ends, old = tonumber(scope), redis.call('HGET', UNIQUE, key)
  local till, holder = string.match(old or '', '^(%w+) (.+)$')
  if ends and ends <= now then
    return 'done' -- the window is over
  elseif till and (tonumber(till) and tonumber(till) > now or not tonumber(till) and redis.call('HEXISTS', JOBS, holder) == 1) then
    return 'there'
  end
  if not ends then
    local record = redis.call('HGET', JOBS, id)
    if not record then
      return 'done' -- it ended, or started, while the file was written
    end
    if is_terminal(id) or select(2, unique_of(record)) ~= key then
      return 'there' -- it has ended here, or the ID is another job's
    end
    for _, list in ipairs(sessions) do
      if redis.call('HEXISTS', list, id) == 1 then
        return 'done' -- it has started here: a call that updates it would be lost
      end
    end
  end
  if writes then
    redis.call('HSET', UNIQUE, key, value)
    if ends then
      redis.call('ZADD', WINDOWS, digits(ends), key)
    end
  end
  return 'done'
end

-- Notes that a dead job is to be copied to another queue, unless that is noted.
local function death(writes, _, _, id, value)
  if redis.call('HEXISTS', NOTES, 'dead ' .. id) == 1 then
    return 'there'
  end
  if writes then
    redis.call('HSET', NOTES, 'dead ' .. id, value)
  end
  return 'done'
end

local writes = dry ~= '1'
if writes then
  begin(SETTINGS, STATS, begins)
end
local put, answers = ({outbox = outbox, cron = cron, unique = unique, death = death})[kind], {}
for i = fixed + 1, #ARGV, width do
  local answer = put(writes, now, sessions, unpack(ARGV, i, i + width - 1))
  if not answer then
    return redis.error_reply('ERR signalbox: the lane of the outbox has a text that is not its own: is another program writing to this queue?')
  end
  answers[#answers + 1] = answer
end
return {'ok', digits(now), answers}
