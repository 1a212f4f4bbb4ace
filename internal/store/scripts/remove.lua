-- Removes the queue, unless something is there that counts: all its keys but those of lanes, outboxes and sessions, which have names of their own. A lane
-- expires by itself, and must stay until then: a call whose reply was lost may be made again.
--
-- KEYS, ARGV: as named below
--       dry: '1': nothing is changed
--       loose: '1': settings that people and workers have made don't keep the queue. A pause, a hold, or a rate that counts does
--       unused: for how long (us) no job must have started and no worker have had the queue; '0' for any time
-- Reply: {'ok', time in us, reasons}: the queue was removed if there is no reason against it. Each is two texts, what it is and a detail:
--          'live', 'dead', 'cancelled', 'completed': the number of such jobs
--          'session': a session that isn't over
--          'entries': the number of cron entries, or fields of the past of some
--          'outbox': the number of outboxes whose relays have reported the queue within a minute
--          'unique': when (us) the last window of a unique key ends
--          'receipt': when (us) the last receipt of a move is of no use any more
--          'paused', 'group': since when (us), and the number of groups, that are paused
--          'quiet': a worker that was asked within a day to take no jobs, or to end
--          'held', 'rate': until when (us) jobs are held back, or a rate counts those that have started, by the clock of limits
--          'setting', 'unknown': a field of the settings, or of the limits
--          'fence': when (us) Redis' clock is behind the last token
--          'used': when (us) a worker last had the queue, or a job started
-- Errors: those of Redis, and 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local SESSIONS, FENCE, JOBS, DUE, IDLE, STATS, HISTORY, CRON, ENTRIES, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, CANCELS, SETTINGS, COMPLETED, REPORTER, LINED, TURNS, GROUPS, RUNNING, LIMITS, RATES, PARKED, UNIQUE, WINDOWS, EXPIRES, RECEIPTS, OUTBOXES = unpack(KEYS)
local protocol, dry, loose, unused = unpack(ARGV)

-- include: clock, digits, standing, limits_clock

local held_back = standing(SETTINGS, STATS, protocol)
if tonumber(held_back) then
  return redis.error_reply('LAYOUT ' .. held_back .. ' signalbox: the layout of the queue is not one that protocol ' .. protocol .. ' knows')
end
local now, reasons = clock(), {}
local function against(what, detail)
  reasons[#reasons + 1] = what
  reasons[#reasons + 1] = type(detail) == 'number' and digits(detail) or detail
end

-- Jobs. IDs without a record are in lists, sets and marks what workers pass over.
local live = redis.call('HLEN', JOBS)
local terminal
-- include: terminal_states
for _, name in ipairs({'dead', 'cancelled', 'completed'}) do
  local state = terminal[name]
  local ended = redis.call('ZCARD', state.set)
  if ended > 0 then
    against(name, ended)
    live = live - ended
  end
end
if live > 0 then
  against('live', live)
end

-- Workers. If no job is left, nothing is to be taken back of a session that is over.
for _, session in ipairs(redis.call('ZRANGE', SESSIONS, '(' .. digits(now), '+inf', 'BYSCORE', 'LIMIT', 0, 10)) do
  against('session', session)
end

-- The past, without which something would happen again.
local entries, reported = redis.call('HLEN', CRON) + redis.call('HLEN', ENTRIES), redis.call('HLEN', OUTBOXES)
if reported > 0 then
  against('outbox', reported)
end
local window = redis.call('ZRANGE', WINDOWS, 0, 0, 'REV', 'WITHSCORES')
if window[2] and tonumber(window[2]) > now then
  against('unique', tonumber(window[2]))
end
local receipt = redis.call('ZRANGE', RECEIPTS, 0, 0, 'REV', 'WITHSCORES')
if receipt[2] and tonumber(receipt[2]) + 2592000000000 > now then -- as drop_receipts has it
  against('receipt', tonumber(receipt[2]) + 2592000000000)
end
local token = tonumber(redis.call('GET', FENCE) or '0') or math.huge
if token > now then
  against('fence', math.min(token, 9007199254740991)) -- tokens would go back
end

-- Settings.
local known = {
  keep_jobs = true, keep_bytes = true, keep_us = true, keep_completed = true, copy_dead = true, limits = true, group_limits = true, max_length = true, slots = true,
}
local settings = redis.call('HGETALL', SETTINGS)
for i = 1, #settings, 2 do
  local field, value = settings[i], settings[i + 1]
  local worker = string.match(field, '^quiet:(.*)$')
  if field == 'paused' then
    against('paused', value)
  elseif worker then
    local since = tonumber((string.match(value, '(%d+)$')))
    if since and now - since <= 86400000000 then -- later it is forgotten, as the worker has died
      against('quiet', worker)
    end
  elseif string.find(field, '^cron:') then
    entries = entries + 1
  elseif known[field] then
    if loose ~= '1' then
      against('setting', field)
    end
  elseif field ~= 'layout' then
    against('unknown', field)
  end
end
if entries > 0 then
  against('entries', entries)
end
local own, paused = 0, 0
local limits = redis.call('HGETALL', LIMITS)
for i = 1, #limits, 2 do
  local kind = string.sub(limits[i], 1, 1)
  if kind == 'g' then
    own = own + 1
  elseif kind == 'p' then
    paused = paused + 1
  elseif kind ~= 'h' and kind ~= 'd' then -- by which job something is held back; RATES says whether it is. Which job waits for a rate; if it is there it counts above
    against('unknown', limits[i])
  end
end
if paused > 0 then
  against('group', paused)
end
if own > 0 and loose ~= '1' then
  against('setting', 'limits of groups')
end
local steady = limits_clock(now)
local held, rated
local ahead = redis.call('ZRANGE', RATES, '+inf', '(' .. digits(steady), 'BYSCORE', 'REV', 'LIMIT', 0, 100, 'WITHSCORES')
for i = 1, #ahead, 2 do
  if string.sub(ahead[i], 1, 1) == 'h' then
    held = held or tonumber(ahead[i + 1])
  else
    rated = rated or tonumber(ahead[i + 1])
  end
end
if held then
  against('held', held)
end
if rated then
  against('rate', rated)
end

-- The last use that Redis knows of: workers note it each time that they renew their sessions.
if unused ~= '0' then
  local last = tonumber((string.match(redis.call('HGET', HISTORY, 'last') or '', '^(%d+) '))) or 0
  local used = math.max(token <= now and token or 0, last <= now and last or 0)
  if used > now - tonumber(unused) then
    against('used', used)
  end
end

if dry ~= '1' then
  redis.call('HDEL', SETTINGS, '') -- a server that refuses writes refuses the call, whatever it finds
end
if #reasons == 0 and dry ~= '1' then
  for k = 1, #KEYS do -- Redis permits this also when it is out of memory
    redis.call('DEL', KEYS[k])
  end
end
return {'ok', now, reasons}
