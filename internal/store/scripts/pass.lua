-- Does a page of a pass that ends the members of a flow that was cancelled.
--
-- KEYS, ARGV: as named below, then in KEYS inflight:<session> of each session
--       protocol: the newest layout that the caller knows
--       name: that of the flow; mark: what CANCELS has behind the token of a job that runs
--       keep_jobs, keep_bytes, keep_us: as in claim.lua; inflight, channels: as in act.lua
-- Reply: {'ok', time in us, word, us}
--        word: 'more': there is more of the pass; 'wait': it has ended; 'over': the flow is over, or isn't there, or wasn't cancelled
--        us: with 'wait', when the next pass may begin, or nobody needs one before; else 0
--        {'again'}  there is a session that isn't in KEYS; nothing was done
-- Errors: those of Redis, and 'NOPERM signalbox: ...', or 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local SESSIONS, JOBS, DUE, IDLE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, CANCELS, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, UNIQUE, WINDOWS, EXPIRES, FLOWS, AWAITING, FLOWNOTES, FLOWTIMES, ADDED = unpack(KEYS)
local first_session = 27 -- of KEYS
local protocol, name, mark, keep_jobs, keep_bytes, keep_us, inflight, channels = unpack(ARGV)

local withheld, _, maximum = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
check_keys()
local _, all = session_keys(first_session, inflight)
if not all then
  return {'again'}
end
local denied = denied_flow()
if denied then
  return denied
end
local now = clock()
local acts = new_acts(now, withheld, new_ends(now, false, keep_jobs, keep_bytes, keep_us))
local full = full_at(maximum)
redis.call('HDEL', FLOWNOTES, '') -- permitted out of memory, and with it all that follows

local f, note = read_flow(acts.ends, name), redis.call('HGET', FLOWNOTES, name .. '{x')
if not f or not is_flow(f, 'x') or is_flow(f, 'd') then
  redis.call('HDEL', FLOWNOTES, name .. '{x')
  return {'ok', now, 'over', 0}
end
local following = tonumber((string.match(note or '', ' (%d+)$'))) or 0
if following > now then
  return {'ok', now, 'wait', following - now}
end
local more = pass_page(acts, f, note or '', mark, first_session)
turn_flows(acts)
end_acts(acts)
tell_cancelled(acts, inflight, channels)
tell_room(full)
if is_flow(f, 'd') then
  return {'ok', now, 'over', 0}
end
following = tonumber((string.match(redis.call('HGET', FLOWNOTES, name .. '{x') or '', ' (%d+)$'))) or 0
return {'ok', now, more and 'more' or 'wait', more and 0 or math.max(following - now, 0)}
