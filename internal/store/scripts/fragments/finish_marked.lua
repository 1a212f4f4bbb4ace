-- include: finish, has_header

-- Ends a job that was cancelled while it ran. mark is what CANCELS had of it: a token, ' ', a length, ' ', so many bytes to append
-- to the record, and those to append instead if its handler had returned nil, as finished says. record is the one to keep; nil:
-- the one that is there.
local function finish_marked(id, mark, finished, record)
  record = record or redis.call('HGET', JOBS, id)
  if not record then
    finish('completed', {id})
  else
    local length, at = string.match(mark, '^%d+ (%d+) ()')
    if length and has_header(record) then
      local why = string.sub(mark, at)
      length = tonumber(length)
      record = record .. (finished and string.sub(why, length + 1) or string.sub(why, 1, length))
    end
    finish('cancelled', {id}, record)
  end
  redis.call('HDEL', CANCELS, id)
end
