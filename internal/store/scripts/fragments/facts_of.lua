-- include: digits, group_of, line_of, unique_of, expiry_of

-- Returns what there is of a job, and what it has cost to find out. The first is a list of texts: a digest of those behind it, the ID,
-- the first 224 bytes of the record, its size ('' if there is none), the note and the mark ('' if there is none, else behind '+').
-- Then four for each place: 'ready', class, how many times it is in the list, '', if the lists are searched; 'lined', class, '', '', of a job in its group's line; 'due', class, score, '';
-- 'running', session, what the session holds, '1' if the session is registered; or 'dead', 'cancelled' or 'completed', score, '', ''. At last
-- 'unique', the scope, the unique key, and what UNIQUE has for it, if the record has a key that isn't for a window.
-- 'expires', when it expires by EXPIRES and when by its record, '', if either says so; '' stands for never.
local function facts_of(id)
  local record = redis.call('HGET', JOBS, id)
  local note, mark = redis.call('HGET', NOTES, id), redis.call('HGET', CANCELS, id)
  local facts = {id, string.sub(record or '', 1, 224), record and digits(#record) or '', note and '+' .. note or '', mark and '+' .. mark or ''}
  local cost = math.floor(#(record or '') / 64)
  local function put(...)
    for i = 1, 4 do
      facts[#facts + 1] = (select(i, ...))
    end
  end
  for _, class in ipairs({'0', '1', '2', 's'}) do
    if search == '1' then
      local list = lists[class]
      local times = #redis.call('LPOS', list, id, 'COUNT', 0)
      cost = cost + redis.call('LLEN', list)
      if times > 0 then
        put('ready', class, digits(times), '')
      end
    end
  end
  local group = record and group_of(record)
  if group and redis.call('ZSCORE', LINED, line_of(record, group, id)) then
    put('lined', string.sub(record, 2, 2), '', '')
  end
  for _, class in ipairs({'0', '1', '2', 's', 'a', 'b', 'c'}) do
    local us = redis.call('ZSCORE', DUE, class .. id)
    if us then
      put('due', class, us, '')
    end
  end
  for k = first_session, #KEYS do
    local held = redis.call('HGET', KEYS[k], id)
    if held then
      local session = string.sub(KEYS[k], #inflight + 1)
      put('running', session, held, redis.call('ZSCORE', SESSIONS, session) and '1' or '0')
    end
  end
  local terminal
  -- include: terminal_states
  for _, name in ipairs({'dead', 'cancelled', 'completed'}) do
    local state = terminal[name]
    local us = redis.call('ZSCORE', state.set, id)
    if us then
      put(name, us, '', '')
    end
  end
  local scope, key = unique_of(record or '')
  if scope == 's' or scope == 'e' then
    put('unique', scope, key, redis.call('HGET', UNIQUE, key) or '')
  end
  local said, at = redis.call('ZSCORE', EXPIRES, id), record and expiry_of(record)
  if said or at then
    put('expires', said or '', at and digits(at) or '', '')
  end
  table.insert(facts, 1, redis.sha1hex(table.concat(facts, '\0')))
  return facts, cost
end
