-- Describes cron entries, for tools: what they are, and when a scheduler last had them. It doesn't change when their ticks come.
-- A scheduler describes each of its entries when it begins, and later only says that it still has them. If schedulers have different
-- descriptions of one entry, that of the scheduler which began last counts, until none has said for patience that it has the entry.
--
-- KEYS: as named below
-- ARGV: protocol; patience (us); then for each entry: name, digest of its description, description, job
--       description, job: '' if the scheduler only says that it still has the entry
-- Reply: {'ok', names}: entries that the scheduler must describe: Redis has no description, or only one that has lapsed
-- Errors, all before the first write: those of Redis, and 'LAYOUT n signalbox: ...' as that of an enqueue

local ENTRIES, SETTINGS = unpack(KEYS)
local fixed = 2 -- the number of arguments before those of the entries
local protocol, patience = unpack(ARGV, 1, fixed)

-- include: clock, digits, standing, holder

local held_back = standing(SETTINGS, protocol)
if tonumber(held_back) then
  return redis.error_reply('LAYOUT ' .. held_back .. ' signalbox: the layout of the queue is newer than protocol ' .. protocol)
end
local now = clock()
local fields, lacking = {}, {}
for i = fixed + 1, #ARGV, 4 do
  local name, digest, description, job = unpack(ARGV, i, i + 3)
  local seen, has = unpack(redis.call('HMGET', ENTRIES, 'seen:' .. name, 'spec:' .. name))
  local other, lives = holder(seen, now, tonumber(patience))
  local mine = has and other == digest
  if description ~= '' then
    fields[#fields + 1], fields[#fields + 2] = 'spec:' .. name, description
    fields[#fields + 1], fields[#fields + 2] = 'job:' .. name, job
    mine = true
  elseif not mine and not (has and lives) then
    lacking[#lacking + 1] = name
  end
  if mine then
    fields[#fields + 1], fields[#fields + 2] = 'seen:' .. name, digits(now) .. ' ' .. digest
  end
end
if #fields > 0 then
  redis.call('HSET', ENTRIES, unpack(fields))
end
return {'ok', lacking}
