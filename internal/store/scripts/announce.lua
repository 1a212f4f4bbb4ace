-- Describes cron entries, for tools: what they are, and when a scheduler last had them. It doesn't change when their ticks come.
-- A scheduler describes each of its entries when it begins, and later only says that it still has them. If schedulers have different
-- descriptions of one entry, that of the scheduler which began last counts, until none has said for patience that it has the entry.
-- But a description with another plan than the one in force doesn't count (see plan.lua).
--
-- KEYS: as named below
-- ARGV: protocol: the newest layout that the caller knows
--       patience: for how long (us) a description counts whose scheduler doesn't say that it has the entry
--       then for each entry: name: its name; plan: the digest of its plan, see plan.lua, '' for none; digest: of its description; description, job: texts in
--       JSON that inspect reads, '' if the scheduler only says that it still has the entry
-- Reply: {'ok', names}
--        names: of the entries that the scheduler must describe: Redis has no description, or only one that has lapsed, or one with
--        a plan that isn't in force
-- Errors, all before the first write: those of Redis, and 'LAYOUT n signalbox: ...' as that of an enqueue

local STATS, CRON, ENTRIES, SETTINGS = unpack(KEYS)
local fixed = 2 -- the number of arguments before those of the entries
local protocol, patience = unpack(ARGV, 1, fixed)

local withheld, _, _, begins = read_settings(SETTINGS, STATS, protocol)
if tonumber(withheld) then
  return other_layout(withheld, protocol)
end
local now = clock()
local fields, lacking = {}, {}
for i = fixed + 1, #ARGV, 5 do
  local name, plan, digest, description, job = unpack(ARGV, i, i + 4)
  local in_force = string.match(redis.call('HGET', CRON, 'plan ' .. name) or '', '^%x+')
  local counts = plan == '' or not in_force or plan == in_force
  local seen, has = unpack(redis.call('HMGET', ENTRIES, 'seen:' .. name, 'spec:' .. name))
  local other, lives, described = holder_of(seen, now, tonumber(patience))
  local mine = has and other == digest
  if description ~= '' and counts then
    fields[#fields + 1], fields[#fields + 2] = 'spec:' .. name, description
    fields[#fields + 1], fields[#fields + 2] = 'job:' .. name, job
    mine = true
  elseif description == '' and not mine and counts and not (has and lives and described == plan) then
    lacking[#lacking + 1] = name
  end
  if mine then
    fields[#fields + 1], fields[#fields + 2] = 'seen:' .. name, digits(now) .. ' ' .. digest .. (plan ~= '' and ' ' .. plan or '')
  end
end
if #fields > 0 then
  begin(SETTINGS, STATS, begins)
  redis.call('HSET', ENTRIES, unpack(fields))
end
return {'ok', lacking}
