-- Looks at some jobs: where each is, and what is kept of it, all at one moment. It writes nothing.
--
-- KEYS: as named below, then inflight:<session> of each session
-- ARGV: inflight, channels: what stands before a session in the name of its key and of its channel
--       source: where the IDs come from. 'ids': they follow. 'jobs', 'due', 'dead', 'cancelled', 'completed', 'expires', 'notes', 'cancels', 'session': a page
--       of that key. 'ready': a part of a list. 'idle': it looks at the addresses of idle sessions instead
--       of: for 'ready' the class of the list, for 'session' the session
--       cursor, count: as for HSCAN; for 'ready' the first and the last place in the list
--       search: '1' to look for each job in all ready lists
--       budget: the call does no more jobs once it has cost that much: a unit is what Redis needs to look at an entry of a list
--       then, for 'ids', the IDs of the jobs
-- Reply: {'ok', time in us, next, fence, largest, jobs, left, records}
--        next: the cursor to go on with, '0' at the end; for 'ready' the length of the list, for 'idle' the number of addresses; fence, largest: what the keys have, '' for
--        nothing; jobs: what facts_of returns for each; left: IDs of the page that the call didn't get to, for 'idle' addresses without
--        a session, for 'unique' keys that are no longer so; records: for 'jobs' each ID of the page, and its
--        record; for 'due' members that have no class or no ID; for 'unique' what UNIQUE has for each of left
--        {'again'}  there is a session that isn't in KEYS; nothing was looked at
-- Errors: those of Redis.

local SESSIONS, FENCE, JOBS, DUE, IDLE, STATS, HIGH, NORMAL, LOW, SUSPECT, DEAD, CANCELLED, NOTES, CANCELS, COMPLETED, LINED, UNIQUE, WINDOWS, EXPIRES, AWAITING = unpack(KEYS)
local first_session = 21 -- of KEYS
local fixed = 8 -- arguments before the IDs
local inflight, channels, source, of, cursor, count, search, budget = unpack(ARGV, 1, fixed)

local sessions, all = session_keys(first_session, inflight)
if not all then
  return {'again'}
end
redis.call('ZCARD', LINED)
redis.call('HLEN', UNIQUE)
redis.call('ZCARD', WINDOWS)
redis.call('ZCARD', EXPIRES)
redis.call('ZCARD', AWAITING)
local following, ids, left, records = '0', {}, {}, {}
if source == 'ids' then
  for i = fixed + 1, #ARGV do
    ids[#ids + 1] = ARGV[i]
  end
elseif source == 'ready' then
  local list = ready_lists[of]
  ids, following = redis.call('LRANGE', list, cursor, count), digits(redis.call('LLEN', list))
elseif source == 'idle' then
  left, following = strange_addresses(channels, count)
elseif source == 'unique' then
  following, left, records = wrong_keys(cursor, count, first_session)
elseif source ~= 'session' then
  following, ids, records = page_of(source, cursor, count)
elseif sessions[of] then -- else the page is empty
  following, ids = page_of_session(sessions[of], cursor, count)
end

local jobs, cost = {}, 0
for _, id in ipairs(ids) do
  if cost > tonumber(budget) then
    left[#left + 1] = id
  else
    local facts, looked = facts_of(id, first_session, inflight, search == '1')
    jobs[#jobs + 1] = facts
    cost = cost + 30 * (16 + #KEYS - first_session) + looked
  end
end
return {'ok', clock(), following, redis.call('GET', FENCE) or '', redis.call('HGET', STATS, 'largest') or '', jobs, left, records}
