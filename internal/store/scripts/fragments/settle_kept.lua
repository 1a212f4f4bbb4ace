-- A step of claim.lua: ends a completed job that its worker asks to keep. record has what is appended to its record. If the queue keeps
-- none any more, the job is deleted like others.
local old = bounds and redis.call('HGET', JOBS, id)
if old then
  finish('completed', {id}, has_header(old) and old .. record or old, bounds)
else
  finish('completed', {id})
end
