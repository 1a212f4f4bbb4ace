-- Registers the plans of cron entries. A plan is what the times of an entry's ticks depend on, as a digest. At any moment one plan is in
-- force for an entry: of those that a scheduler has registered within patience, the one that was new last. A scheduler registers the
-- plans of its entries when it begins, and again and again. An enqueue refuses a tick of another plan than the one in force.
-- A scheduler knows when its plan was new, and says so when it registers the plan again. So a Redis that forgot plans gets them back in
-- their order, and a scheduler that was away for long isn't taken for one with a new plan.
-- A plan that is set at run time, in place of another one, is new at that time. The scheduler says when that was, so it doesn't matter in
-- which order the calls of several schedulers come, or whether one is repeated.
--
-- KEYS: as named below
-- ARGV: protocol: the newest layout that the caller knows; patience (us): a plan that no scheduler has registered for so long gives way to any other;
--       then for each entry: name: its name; mine: the caller's plan, a digest in hexadecimal digits; born: when that plan was new (us), '' if the scheduler
--       begins; with '=' in front if it was set then
-- Reply: {'ok', list}
--        list: four values for each entry: its last tick in us or ''; since when this plan counts in us: earlier ticks are never
--        made up for; 1 if it is in force, else 0; when it was new in us
-- A caller that is too old for the queue changes nothing, and is told that its plans are in force: an enqueue tells it the truth.
-- Errors: those of Redis, before the first write.

local STATS, CRON, SETTINGS = unpack(KEYS)
local fixed = 2 -- the number of arguments before those of the entries
local ahead = 1000000 -- us by which a time may be in the future, as the scheduler's estimate of this clock may be a little ahead
local protocol, patience = unpack(ARGV, 1, fixed)

patience = tonumber(patience)
local withheld, _, _, begins = read_settings(SETTINGS, STATS, protocol)
local outdated = tonumber(withheld)
local now = clock()
local fields, list = {}, {}
for i = fixed + 1, #ARGV, 3 do
  local name, mine, born = unpack(ARGV, i, i + 2)
  local set = string.sub(born, 1, 1) == '='
  born = tonumber(set and string.sub(born, 2) or born)
  local last, text = unpack(redis.call('HMGET', CRON, name, 'plan ' .. name))
  -- The field 'plan <entry>' holds plans, the newest first: the plan, since when it counts, when it was last registered, and when it
  -- was new.
  local oldest = now - patience
  local before = tonumber((string.match(text or '', mine .. ' %d+ (%d+)')))
  if born and not set and before and before < oldest then -- this scheduler was away: the others may have been, too, and come back
    oldest = before - patience
  end
  local plans, own, lapsed, first = {}, nil, nil, true
  for plan, since, seen, new in string.gmatch(text or '', '(%x+) (%d+) (%d+) (%d+)') do
    seen = math.min(tonumber(seen), now) -- a wrong clock may have written it
    if seen >= oldest or first and plan == mine then
      if lapsed then
        since = math.max(tonumber(since), lapsed) -- the ticks since then are nobody else's
        lapsed = nil
      end
      local p = {plan, tonumber(since), seen, tonumber(new)}
      plans[#plans + 1] = p
      own = plan == mine and p or own
    elseif first then
      lapsed = math.max(seen, math.min(tonumber(since), now)) -- it may have been paused since it was last registered
    end
    first = false
  end
  local newest = plans[1] and plans[1][4] or 0
  if set and newest > now + ahead then
    born = newest + 1 -- a plan of the future is one of a wrong clock
  elseif set and born > now + ahead then
    born = math.max(now, newest + 1)
  end
  local was_first = own and own == plans[1]
  if was_first then
    own[4] = math.max(own[4], born or 0)
  elseif own and born and born > own[4] then -- it is newer than Redis knows
    for j = #plans, 1, -1 do
      if plans[j] == own then
        table.remove(plans, j)
      end
    end
    own = nil
  end
  if not own then
    own = {mine, now, now, born or math.max(now, newest + 1)}
    local at = 1
    while born and plans[at] and plans[at][4] > born do
      at = at + 1
    end
    table.insert(plans, at, own)
  end
  own[3] = now
  local kept = math.min(#plans, 8)
  for j = 1, kept do
    local p = plans[j]
    plans[j] = p[1] .. ' ' .. digits(p[2]) .. ' ' .. digits(p[3]) .. ' ' .. digits(p[4])
  end
  fields[#fields + 1] = 'plan ' .. name
  fields[#fields + 1] = table.concat(plans, ',', 1, kept)
  list[#list + 1] = last or ''
  list[#list + 1] = digits(own[2])
  list[#list + 1] = (outdated or string.find(plans[1], mine .. ' ', 1, true) == 1) and '1' or '0'
  list[#list + 1] = digits(own[4])
end
if not outdated and #fields > 0 then
  begin(SETTINGS, STATS, begins)
  redis.call('HSET', CRON, unpack(fields))
end
return {'ok', list}
