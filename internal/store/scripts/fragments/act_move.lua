-- A step of act.lua: cancels a job that waits, deletes one, or changes its record, its place or both. The record of one that is to be held
-- gets a field 101 (docs/wire.md): its state, a space, and when it ended (us), or 0.
local ended = state == 'dead' or state == 'cancelled' or state == 'completed'
local again, us, stays = edited ~= '' and edited or record, due, verb == 'edit'
if verb == 'run' then
  stays = state == 'ready' and due <= now
  again = stays and again or rerun(again, math.max(due, now), ended)
elseif verb == 'class' then
  again = string.sub(record, 1, 1) .. class .. string.sub(record, 3)
  us = state == 'scheduled' and held or 0
  stays = again == record or class_of(again) == class_of(record) and not group_of(record) -- as a suspect's is, but for one in a line
elseif verb == 'hold' then
  -- include: ended_at
  local was = state .. ' ' .. (ended and digits(ended_at(tonumber(redis.call('ZSCORE', place.set, id)), record)) or '0')
  again = redue(again .. '\170\6' .. string.char(#was) .. was, due)
end
if stays then
  redis.call('HSET', JOBS, id, again)
  if ended then
    count(STATS, place.bytes, #again - #record)
  else
    grown = math.max(grown, #again)
  end
else
  -- include: act_leave
  if not found then
    answer = 'lost ' .. state
  elseif verb == 'cancel' then
    local dropped = finish('cancelled', {id}, has_header(record) and record .. why or nil)
    free_key_of(id, record)
    cost = cost + 250 * dropped
  elseif verb == 'delete' then
    finish('deleted', {id})
    free_key_of(id, record, true)
  else
    -- include: act_enter
    if ended and verb ~= 'hold' then
      local _, scope, key = key_taken(id, again)
      if scope then
        redis.call('HSET', UNIQUE, key, scope .. ' ' .. id)
      end
      note('revived', 1)
    end
  end
end
