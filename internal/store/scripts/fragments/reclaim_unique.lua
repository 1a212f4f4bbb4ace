-- include: key_held, free_keys

-- A step of reclaim.lua: frees the unique keys of the jobs that the call has ended.
local again, keys, key_ids = {}, {}, {}
for _, id in ipairs(reclaimed) do
  again[id] = true
end
for i = 1, done do
  local key = key_held(held[i])
  if key and seen[ids[i]] and not again[ids[i]] then
    keys[#keys + 1], key_ids[#key_ids + 1] = key, ids[i]
  end
end
if #keys > 0 then
  free_keys(keys, key_ids)
end
