-- include: group_of, later_class, line_of

-- A step of enqueue.lua: finds whether another job of the entry leaves no room for one more in the line of its serial group. One that has
-- begun is in neither of the places where jobs wait for their turn.
local record = not seen[other] and redis.call('HGET', JOBS, other)
stays_out = stays_out or not record or group_of(record) ~= detail.group
  or redis.call('ZSCORE', LINED, line_of(record, detail.group, other))
  or redis.call('ZSCORE', DUE, later_class(string.sub(record, 2, 2)) .. other)
