-- Looks after flows: goes on with the jobs that wait for one, or looks at flows whose time has come.
--
-- KEYS, ARGV: as named below
--       protocol: the newest layout that the caller knows
--       name: of a flow that has a note since a call has left jobs that wait for it; '' to look at flows whose time has come
--       cursor: for a page of ADDED, '' for none
--       keep_jobs, keep_bytes, keep_us: as in claim.lua
-- Reply: {'ok', time in us, next, cursor, late}
--        next: us until the next flow is to be looked at, -1 if there is none; cursor: to go on with, '0' at the end; late: flows that were cancelled since
--        their time had come: '1', or '0' of one that nobody had sealed in time, and the name
-- Errors: those of Redis, and 'NOPERM signalbox: ...', or 'LAYOUT n signalbox: ...' as in enqueue.lua; before the first write.

local SESSIONS, JOBS, DUE, IDLE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, EXPIRES, FLOWS, AWAITING, FLOWNOTES, FLOWTIMES, ADDED = unpack(KEYS)
local protocol, name, cursor, keep_jobs, keep_bytes, keep_us = unpack(ARGV)

local withheld, _, maximum = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
check_keys()
local denied = denied_flow()
if denied then
  return denied
end
local now = clock()
local acts = new_acts(now, withheld, new_ends(now, false, keep_jobs, keep_bytes, keep_us))
local full = full_at(maximum)
redis.call('HDEL', FLOWNOTES, '') -- permitted out of memory, and with it all that follows

local late = {}
if name ~= '' then
  redis.call('HDEL', FLOWNOTES, name .. '{')
  local f = read_flow(acts.ends, name)
  if f then
    f.news = true
    touch_flow(acts.ends, f)
  end
else
  late = look_at_flows(acts)
end
local following = cursor ~= '' and forget_added(acts.ends, cursor) or '0'
turn_flows(acts)
end_acts(acts)
tell_room(full)
local first = redis.call('ZRANGE', FLOWTIMES, '0', '0', 'WITHSCORES')
return {'ok', now, first[2] and math.max(tonumber(first[2]) - now, 0) or -1, following, late}
