-- Returns how many completed jobs a queue keeps, in the form of retention, or nil if it keeps none.
local function keeps(settings)
  local set = redis.call('HGET', settings, 'keep_completed')
  local jobs, bytes, us = string.match(set or '', '^([1-9]%d*) ([1-9]%d*) ([1-9]%d*)$')
  if us and #jobs <= 15 and #bytes <= 15 and #us <= 15 then
    return {tonumber(jobs), tonumber(bytes), tonumber(us)}
  end
end
