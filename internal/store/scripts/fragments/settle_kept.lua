-- A step of claim.lua: ends a completed job that its worker asks to keep. record has what is appended to its record. If the queue keeps
-- none any more, the job is deleted like others, unless its record says how long it is to be kept.
-- include: own_age
local old = redis.call('HGET', JOBS, id)
local most = bounds
if old and not most and own_age(old) then
  most = limits.own or {tonumber(keep_jobs), tonumber(keep_bytes), math.huge}
  limits.own = most -- one for the call: retain counts in it
end
if old and most then
  finish('completed', {id}, has_header(old) and old .. record or old, most)
else
  finish('completed', {id})
end
