-- Registers the plans of cron entries. A plan is what the times of an entry's ticks depend on, as a digest. At any moment one plan is in
-- force for an entry: of those that a scheduler has registered within patience, the one that was new last. A scheduler registers the
-- plans of its entries when it begins, and again and again. An enqueue refuses a tick of another plan than the one in force.
--
-- KEYS: as named below
-- ARGV: protocol; patience (us): a plan that no scheduler has registered for so long gives way to any other;
--       then for each entry: name, plan
-- Reply: {'ok', list}: three values for each entry: its last tick in us or '', since when this plan counts in us, and 1 if it is in
--        force, else 0. Ticks from before that time are never made up for
-- A caller that is too old for the queue changes nothing, and is told that its plans are in force: an enqueue tells it the truth.
-- Errors: those of Redis, before the first write.

local CRON, SETTINGS = unpack(KEYS)
local fixed = 2 -- the number of arguments before those of the entries
local protocol, patience = unpack(ARGV, 1, fixed)

-- include: clock, digits, standing

patience = tonumber(patience)
local outdated = tonumber((standing(SETTINGS, protocol)))
local now = clock()
local fields, list = {}, {}
for i = fixed + 1, #ARGV, 2 do
  local name, mine = unpack(ARGV, i, i + 1)
  local last, text = unpack(redis.call('HMGET', CRON, name, 'plan ' .. name))
  -- The field 'plan <entry>' holds plans, the newest first: the plan, since when it counts, and when it was last registered.
  local plans, own, lapsed, first = {}, nil, nil, true
  for plan, since, seen in string.gmatch(text or '', '(%x+) (%d+) (%d+)') do
    local lives = math.abs(now - tonumber(seen)) <= patience
    if lives or first and plan == mine then
      if lapsed then
        since = math.max(tonumber(since), lapsed) -- the ticks since then are nobody else's
        lapsed = nil
      end
      local p = {plan, tonumber(since), tonumber(seen)}
      plans[#plans + 1] = p
      own = plan == mine and p or own
    elseif first then
      lapsed = tonumber(seen)
    end
    first = false
  end
  if not own then
    own = {mine, now}
    table.insert(plans, 1, own)
  end
  own[3] = now
  local kept = math.min(#plans, 8)
  for j = 1, kept do
    plans[j] = plans[j][1] .. ' ' .. digits(plans[j][2]) .. ' ' .. digits(plans[j][3])
  end
  fields[#fields + 1] = 'plan ' .. name
  fields[#fields + 1] = table.concat(plans, ',', 1, kept)
  list[#list + 1] = last or ''
  list[#list + 1] = digits(own[2])
  list[#list + 1] = (outdated or string.find(plans[1], mine .. ' ', 1, true) == 1) and '1' or '0'
end
if not outdated and #fields > 0 then
  redis.call('HSET', CRON, unpack(fields))
end
return {'ok', list}
