-- include: key_held, free_keys

-- A step of claim.lua: frees the unique keys of the jobs that the call has ended.
local stays = {} -- positions of deliveries that were refused
for k = 1, #refused do
  stays[refused[k]] = true
end
for k = 1, #overruled do
  stays[overruled[k]] = false -- it has ended, whatever was asked
end
local keys, ids = {}, {}
for j = 1, #held - notes do
  local key = held[j] and #held[j] > 16 and key_held(held[j]) -- a token has at most 16 digits
  if key and stays[j] ~= true then
    local i = others + 6 * (j - completed - 1)
    local id = j > completed and ARGV[i] or ARGV[fixed - 1 + 2 * j]
    local outcome = j > completed and ARGV[i + 2] or 'completed'
    local again = outcome == 'retry' or outcome == 'delay' or outcome == 'return'
    if not again or stays[j] == false or redis.call('HEXISTS', JOBS, id) == 0 then
      keys[#keys + 1], ids[#ids + 1] = key, id
    end
  end
end
if #keys > 0 then
  free_keys(keys, ids)
end
