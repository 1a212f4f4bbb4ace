-- Takes a ready job out of its list: that of its class, or whichever has it. Returns whether one had it, and how many entries of
-- lists Redis has looked at for it.
local function unlist(id, class)
  local looked = 0
  for _, list in ipairs({lists[class] or NORMAL, HIGH, NORMAL, LOW, SUSPECT}) do
    -- The ends first: jobs are acted on in their order, or soon after they came.
    local length = redis.call('LLEN', list)
    local first = length > 2000 and redis.call('LPOS', list, id, 'MAXLEN', 1000)
    local last = length > 2000 and not first and redis.call('LPOS', list, id, 'RANK', -1, 'MAXLEN', 1000)
    if first then
      looked = looked + 2 * first
    elseif last then
      looked = looked + 1000 + 2 * (length - last)
    else
      looked = looked + length
    end
    if redis.call('LREM', list, last and -1 or 1, id) > 0 then
      return true, looked
    end
  end
  return false, looked
end
