-- Passes over the queue that end the members of a flow that was cancelled. Each call does a page of one. A note in FLOWNOTES says how far the pass is: what it goes through,
-- the place there, when the pass began (us), and when the next one may begin (us).

-- How many jobs a page looks at.
local page_jobs = 250

-- How many bytes of records it reads.
local page_bytes = 1048576

-- How far from the tail of a ready list it goes. Members further in front end when they are claimed.
local page_depth = 100000

-- What a pass goes through: what follows on what.
local following_part = {run = 'due', due = '0', ['0'] = '1', ['1'] = '2', ['2'] = 's', s = 'lined'}

-- Returns the links of a job with this record if it is a member of the flow, and hasn't ended.
local function links_to(f, record)
  local links = record and links_of(record)
  return links and string.find(' ' .. links .. ' ', ' r' .. f.ref .. ' ', 1, true) and links or nil
end

-- Ends a member that has left its place. Nothing is kept of it.
local function end_member(acts, id, record, links)
  note_end(acts.ends, links, 'cancelled', id)
  finish(acts.ends, 'cancelled', {id}, nil, 'unkept')
  free_key_of(id, record)
end

-- Marks the members that run as cancelled. place is the key of the last session that the page before has looked at: a page ends with the session with which
-- it has looked at 1,000 deliveries. Those from first_session on are the sessions' keys. One that comes later gets no members. Returns the place to go on
-- from, or nil at the end.
local function stop_running(acts, f, mark, first_session, place)
  local left, looked = {}, 0
  for k = first_session, #KEYS do
    if KEYS[k] > place then
      left[#left + 1] = k
    end
  end
  table.sort(left, function(a, b)
    return KEYS[a] < KEYS[b]
  end)
  for n, k in ipairs(left) do
    local deliveries = redis.call('HGETALL', KEYS[k])
    looked = looked + math.floor(#deliveries / 2)
    for i = 1, #deliveries, 2 do
      local _, _, _, _, links = delivery_fields(deliveries[i + 1])
      if string.find(' ' .. links .. ' ', ' r' .. f.ref .. ' ', 1, true) and not is_marked(deliveries[i + 1]) then
        mark_cancelled(acts, {id = deliveries[i], value = deliveries[i + 1], place = k}, mark)
      end
    end
    if looked >= 1000 and n < #left then
      return KEYS[k]
    end
  end
  return nil
end

-- Ends members that are due later. place is the last job that the page before has left, behind its score and a '/': it may have gone since. Returns the place
-- to go on from, or nil at the end.
local function end_scheduled(acts, f, place)
  local score, last = string.match(place, '^(%d+)/(.+)$')
  local rank = 0
  if last then
    local at = redis.call('ZSCORE', DUE, last)
    rank = at and tonumber(at) == tonumber(score) and redis.call('ZRANK', DUE, last) + 1 or redis.call('ZCOUNT', DUE, '-inf', '(' .. score)
  end
  local list, ids = redis.call('ZRANGE', DUE, digits(rank), digits(rank + page_jobs - 1), 'WITHSCORES'), {}
  for i = 1, #list, 2 do
    ids[#ids + 1] = string.sub(list[i], 2)
  end
  local looked, _, records = read_records(ids, page_bytes, '')
  for i = 1, looked do
    local member, us = list[2 * i - 1], tonumber(list[2 * i])
    local links = us ~= due_when_held and links_to(f, records[i])
    if links then
      take_out(acts, {id = ids[i], record = records[i], state = 'scheduled', place = member}, true)
      end_member(acts, ids[i], records[i], links)
    else
      place = digits(us) .. '/' .. member
    end
  end
  return #ids > 0 and place or nil
end

-- Ends members in a ready list, from the tail, where jobs come in. place is how many of the last jobs there are no members. They are replaced in the list by
-- what is no ID, and that is removed at once. Returns the place to go on from, or nil at the end.
local function end_ready(acts, f, list, place)
  local from, ids = tonumber(place), {}
  local page = redis.call('LRANGE', list, digits(-from - page_jobs), digits(-from - 1))
  for i = #page, 1, -1 do
    ids[#ids + 1] = page[i]
  end
  local looked, _, records = read_records(ids, page_bytes, '')
  local ended = 0
  for i = 1, looked do
    local links = links_to(f, records[i])
    if links then
      redis.call('LSET', list, digits(-from - i), '{')
      local group = group_of(records[i])
      if group then
        groups_with(acts, group).leave({group})
      end
      end_member(acts, ids[i], records[i], links)
      ended = ended + 1
    end
  end
  if ended > 0 then
    redis.call('LREM', list, digits(-ended), '{')
  end
  from = from + looked - ended
  return #ids > 0 and from < page_depth and digits(from) or nil
end

-- Ends members in the lines of groups. place is the last job that was looked at. Returns the place to go on from, or nil at the end.
local function end_lined(acts, f, place)
  local members, ids = redis.call('ZRANGE', LINED, place == '0' and '-' or '(' .. place, '+', 'BYLEX', 'LIMIT', '0', digits(page_jobs)), {}
  for i = 1, #members do
    ids[i] = string.match(members[i], '^[^\1]+\1' .. string.rep('%d', 16) .. '(.+)$') or ''
  end
  local looked, _, records = read_records(ids, page_bytes, '')
  for i = 1, looked do
    local links, key = links_to(f, records[i]), records[i] and group_of(records[i])
    if links and key and line_of(records[i], key, ids[i]) == members[i] then
      take_out(acts, {id = ids[i], record = records[i], state = 'ready'}, true)
      end_member(acts, ids[i], records[i], links)
    end
  end
  return members[looked]
end

-- Does a page of the pass over a flow that was cancelled, and notes how far it is. note is what FLOWNOTES has of it. Returns whether there is more of the pass.
local function pass_page(acts, f, note, mark, first_session)
  local part, place, begun, following = string.match(note, '^(%w+) (%S+) (%d+) (%d+)$')
  if not part or part == 'run' then
    begun = part and place ~= '0' and begun or digits(acts.now)
    part, place = 'run', stop_running(acts, f, mark, first_session, place or '0')
  elseif part == 'due' then
    place = end_scheduled(acts, f, place)
  elseif part == 'lined' then
    place = end_lined(acts, f, place)
  else
    place = end_ready(acts, f, ready_lists[part], place)
  end
  following = '0'
  if not place then
    part, place = following_part[part], '0'
  end
  if not part then -- the next pass: for those that have changed their places meanwhile
    part, following = 'run', digits(acts.now + math.max(60000000, 10 * (acts.now - tonumber(begun))))
  end
  redis.call('HSET', FLOWNOTES, f.name .. '{x', part .. ' ' .. place .. ' ' .. begun .. ' ' .. following)
  return following == '0'
end
