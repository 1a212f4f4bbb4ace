-- Removes the queue, unless something is there that counts: all its keys but those of lanes, outboxes and sessions, which have names of their own. A lane
-- expires by itself, and must stay until then: a call whose reply was lost may be made again.
--
-- KEYS, ARGV: as named below
--       protocol: the newest layout that the caller knows
--       dry: '1': nothing is changed
--       loose: '1': settings that people and workers have made don't keep the queue. A pause, a hold, or a rate that counts does
--       unused: for how long (us) no job must have started and no worker have had the queue; '0' for any time
-- Reply: {'ok', time in us, reasons}
--        reasons: against it. If there is none, the queue was removed. Each is two texts, what it is and a detail:
--          'live', 'dead', 'cancelled', 'completed': the number of such jobs
--          'session': a session that isn't over
--          'entries': the number of cron entries, or fields of the past of some
--          'outbox': the number of outboxes whose relays have reported the queue within a minute
--          'unique': when (us) the last window of a unique key ends
--          'receipt': when (us) the last receipt of a move is of no use any more
--          'flow': the number of flows: those that aren't over, or are remembered
--          'paused', 'group': since when (us), and the number of groups, that are paused
--          'quiet': a worker that was asked within a day to take no jobs, or to end
--          'held', 'rate': until when (us) jobs are held back, or a rate counts those that have started, by the clock of limits
--          'setting', 'unknown': a field of the settings, or of the limits
--          'fence': when (us) Redis' clock is behind the last token
--          'used': when (us) a worker last had the queue, or a job started
-- Errors: those of Redis, and 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local SESSIONS, FENCE, JOBS, DUE, IDLE, STATS, HISTORY, CRON, ENTRIES, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, CANCELS, SETTINGS, COMPLETED, REPORTER, LINED, TURNS, GROUPS, RUNNING, LIMITS, RATES, PARKED, UNIQUE, WINDOWS, EXPIRES, RECEIPTS, OUTBOXES, FLOWS, AWAITING, FLOWNOTES, FLOWTIMES, ADDED = unpack(KEYS)
local protocol, dry, loose, unused = unpack(ARGV)

local withheld = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
local now, reasons = clock(), {}
local token = tonumber(redis.call('GET', FENCE) or '0') or math.huge
jobs_against(reasons)
sessions_against(reasons, now)
past_against(reasons, now, token)
local entries = redis.call('HLEN', CRON) + redis.call('HLEN', ENTRIES) + settings_against(reasons, now, loose == '1')
if entries > 0 then
  against(reasons, 'entries', entries)
end
groups_against(reasons, loose == '1')
rates_against(reasons, now)
if unused ~= '0' then
  use_against(reasons, now, token, tonumber(unused))
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
