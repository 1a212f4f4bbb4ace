-- Reads jobs that are being moved, and looks for receipts of moves, all at one moment. It writes nothing.
--
-- KEYS: as named below
-- ARGV: jobs: how many jobs; then for each of them: text: its ID; then for each move: text: its name
-- Reply: {'ok', records, receipts}
--        records: of each job 'r' and its record, or '' if there is no such job; receipts: for each name 'r' if it has a receipt, else ''
-- Errors: those of Redis.

local JOBS, RECEIPTS = unpack(KEYS)
local fixed = 1 -- arguments before the IDs
local jobs = unpack(ARGV, 1, fixed)

check_keys()
local records, receipts = {}, {}
for i = fixed + 1, #ARGV do
  local text = ARGV[i]
  if i - fixed <= tonumber(jobs) then
    local record = redis.call('HGET', JOBS, text)
    records[#records + 1] = record and 'r' .. record or ''
  else
    receipts[#receipts + 1] = redis.call('ZSCORE', RECEIPTS, text) and 'r' or ''
  end
end
return {'ok', records, receipts}
