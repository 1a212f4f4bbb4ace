-- A step of claim.lua: reads the marks of the deliveries that the call settles whose jobs were cancelled while they ran. marked has
-- the ids of those that completed.
for j = completed + 1, #held - notes do
  -- include: is_marked
  if is_marked(held[j]) then
    marked = marked or {}
    marked[#marked + 1] = ARGV[others + 6 * (j - completed - 1)]
  end
end
local marks -- by id, if there are any
if marked then
  marks = {}
  for k, mark in ipairs(redis.call('HMGET', CANCELS, unpack(marked))) do
    marks[marked[k]] = mark or ''
  end
  -- include: retention
  limits = retention(SETTINGS, {tonumber(keep_jobs), tonumber(keep_bytes), tonumber(keep_us)})
end
