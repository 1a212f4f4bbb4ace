-- A step of enqueue.lua: reads the newest jobs of each entry. Their IDs have spaces between, and the newest is the first.
jobs_of = {}
for i = 1, #entries do
  fields[i] = 'jobs ' .. entries[i]
end
for i, list in ipairs(redis.call('HMGET', CRON, unpack(fields))) do
  jobs_of[entries[i]] = list or ''
end
