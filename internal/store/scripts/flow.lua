-- Makes a flow, seals it, or cancels it. A call that comes again changes nothing.
--
-- KEYS, ARGV: as named below
--       protocol: the newest layout that the caller knows
--       verb: 'create', 'seal' or 'cancel'
--       name, mark: those of the flow. For 'create' the mark is one of the caller's; for others it is that which the flow must have, or ''
--       within: how long (us) after its producer's last call the flow is cancelled if it isn't sealed; till: how long (us) it may last, 0 for ever;
--       flags: for 'create' 'q' to cancel it when a member ends that hasn't completed; for 'seal' 'r' if its producer has begun again; or ''
--       given: for 'seal', how many jobs its producer knows that it has given; else '0'
--       keep_jobs, keep_bytes, keep_us: as in claim.lua
--       then, for 'create', for each job that waits for the flow: its role in the link, and id, class and envelope as in enqueue.lua. Its extras have the link
-- Reply: {'ok', time in us, word, flow, detail}
--        word: 'new', 'was' for a flow that is there, 'none' for one that isn't; 'gap' if some of what its producer has given are missing, 'fewer' if an
--        earlier producer has given more than one that has begun again: then it isn't sealed; 'taken' if a job has the ID in detail, or two of the call have
--        it, 'full' if the queue has no room: then nothing was done; 'done'
--        flow: what FLOWS has for it then, '' for none; detail: '', an ID, or how many jobs of the queue haven't ended, '/', how many there may be
-- Errors: those of enqueue.lua, before the first write

local SESSIONS, JOBS, DUE, IDLE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, EXPIRES, FLOWS, AWAITING, FLOWNOTES, FLOWTIMES, ADDED = unpack(KEYS)
local fixed = 11 -- arguments before those of the jobs
local protocol, verb, name, mark, within, till, flags, given, keep_jobs, keep_bytes, keep_us = unpack(ARGV, 1, fixed)

local withheld, _, maximum, begins = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
check_keys()
local denied = denied_flow()
if denied then
  return denied
end
local now = clock()
local full = full_at(maximum)
local ends = new_ends(now, false, keep_jobs, keep_bytes, keep_us)
local acts = new_acts(now, withheld, ends)
local f = read_flow(ends, verb ~= 'create' and mark ~= '' and name .. '{' .. mark or name)
local word, detail = 'done', ''
if verb == 'create' and f then
  word = 'was'
elseif verb == 'create' then
  local callbacks, fault = read_callbacks(ARGV, fixed + 1, now)
  if not callbacks then
    return fault
  end
  local seen = {}
  for _, c in ipairs(callbacks) do
    if seen[c.id] or redis.call('HEXISTS', JOBS, c.id) == 1 then
      return {'ok', now, 'taken', '', c.id}
    end
    seen[c.id] = true
  end
  local length = maximum and queue_length()
  if maximum and #callbacks > 0 and length + #callbacks > maximum then
    return {'ok', now, 'full', '', digits(length) .. '/' .. digits(maximum)}
  end
  f = new_flow(ends, name, mark, tonumber(within), tonumber(till), flags)
  redis.call('HSET', FLOWS, name, flow_text(f))
  begin(SETTINGS, STATS, begins)
  put_callbacks(acts, f, callbacks)
  time_flow(f)
  touch_flow(ends, f)
  word = 'new'
elseif not f then
  return {'ok', now, 'none', '', ''}
elseif verb == 'seal' and tonumber(given) > f.given then
  word = 'gap'
elseif verb == 'seal' and flags == 'r' and given ~= '0' and tonumber(given) < f.given and is_flow(f, 'u') then
  word = 'fewer'
else
  redis.call('HDEL', FLOWS, '') -- permitted out of memory, and with it all that follows
  if verb == 'cancel' then
    cancel_flow(ends, f)
  elseif is_flow(f, 'u') then
    seal_flow(ends, f)
  end
end
turn_flows(acts)
end_acts(acts)
tell_room(full)
return {'ok', now, word, flow_text(f), detail}
