-- Puts jobs in. A live job is one that is ready, scheduled or running. If a live job has the ID of a new one, the new one is left out.
-- If a job has it that has ended and is kept, the new one replaces it. The job of a cron entry's tick is put in only if nobody enqueued that
-- tick, or a later one of the entry, before, and if the entry isn't paused. The job of an entry that has a policy for jobs that overlap is
-- put in only if the policy allows it.
--
-- KEYS: as named below; HIGH, NORMAL and LOW are the lists ready:high, ready:normal, ready:low.
-- ARGV: 1 call: protocol, ' ', sequence number of the call in its lane. A caller that knows this server's clock may add ' ' and
--       how far its own reckoning of the time is ahead of that clock (us, with '-' in front if it is behind). Then ticks go by the
--       caller's reckoning, and an entry's last tick that is more than 10 s ahead of it is ignored.
--       Then for each job, 1 to 1000 of them: id, class, when, envelope
--       id: the job's ID, 1 to 200 bytes; envelope: what stands in its record behind header and extras, see docs/wire.md
--       class: '0' high, '1' normal, '2' low; then '!' if the job must never replace another one; then '~' if its payload isn't
--       JSON, so that its record is of version 2; then '*' if a job that has the unique key, and waits for its start, is to get what this one
--       has, and how late after its enqueue it is due then at most (us, in decimal digits; if it isn't there, any time will do); then, if the
--       job has extras, '+', a byte of flags that isn't 0, and up to 1000 bytes of extras. If the flags are odd the job is of a group, and the
--       extras begin with a byte, the length of its key, and the key: 's' for a serial one, 'g' for another, and its name. If the flags have 4,
--       the job has a unique key: see docs/wire.md, "Unique keys"
--       when: '' now, '+us' after that delay, '@us' at that time, '=us entry' for the tick of that cron entry at that time,
--       '=us entry plan bound' if the tick is of that plan (see docs/wire.md, "Plans"), and may be late by bound (us) if it is made up for;
--       '=us entry plan bound overlap' if the entry has a policy for a job that comes while another of the entry is live: 's' leaves it
--       out, 'q' leaves it out if another one waits, and needs a serial group, 'c' puts it in, and the caller cancels the others; '&entry overlap' for a job
--       of the entry now, which belongs to no tick; us in decimal digits
-- Reply: {'ok', time in us, outcomes, met, new}
--        outcomes: a list with an outcome for each job, or with one outcome if it is the same for all:
--          put in: '1' new, 'D' replaced a dead job, 'C' replaced a cancelled job, 'F' replaced a completed job,
--          'r' replaced the last tick of its entry, which was in the future
--          left out because the job with this ID is: '0' ready or running, 's' scheduled, 'd' dead, 'c' cancelled, 'f' completed
--          left out because its tick: 't' was enqueued before, 'e' is in the future of this server, 'l' is more than 5 s ago,
--          'p' passes without a job, since its entry is paused, 'x' is of another plan than the one in force
--          'o' left out since a job of its entry is live; its tick, if it has one, passes without a job
--          left out because another job has its unique key: 'u'; 'U' if that one has got what this one has
--          left out because the queue has as many jobs as it may have that haven't ended: 'n'. The job of a
--          tick is put in all the same
--        met: for each 'u' and 'U' the state of that other job, as the outcomes above have it, or 'g' if it is gone; then its ID. If there are outcomes 'n',
--          last: 'n', how many jobs of the queue haven't ended, '/', how many there may be. Not there if there are none of these
--        new: 'new' if no job was put into the queue before, or that isn't known since the call was made before; then met is there, too. The caller registers
--          the queue then, though it may have done so before: the queue may have been removed. Else not there
--        {'stale'}  a later call of this lane was seen; nothing was done
-- Errors, all before the first write: those of Redis, 'ERR signalbox: ...', 'NOPERM signalbox: ...', and
--         'LAYOUT n signalbox: ...' if n, the layout of the queue, is newer than the protocol or older than 3

local LANE, JOBS, DUE, IDLE, STATS, CRON, HIGH, NORMAL, LOW, DEAD, CANCELLED, NOTES, SETTINGS, COMPLETED, LINED, TURNS, GROUPS, UNIQUE, WINDOWS, EXPIRES = unpack(KEYS)
local made, seldom = {}, nil
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
local whole = string.format('%d', 4294967296) == '4294967296' and '%d' or '%.0f'
local format = string.format
local function digits(n)
  return format(whole, n)
end
local function eight_bytes(us)
  local high = math.floor(us / 4294967296)
  local low = us - high * 4294967296
  local h, d = low % 256, high % 256
  low, high = (low - h) / 256, (high - d) / 256
  local g, c = low % 256, high % 256
  low, high = (low - g) / 256, (high - c) / 256
  local f, b = low % 256, high % 256
  return string.char((high - b) / 256, b, c, d, (low - f) / 256, f, g, h)
end
local function count_up(stats, field, n)
  local sum = redis.pcall('HINCRBY', stats, field, digits(n)) -- digits is faster than what Redis makes of a number
  if type(sum) == 'number' then
    return sum
  elseif string.find(sum.err, 'integer') or string.find(sum.err, 'overflow') then
    redis.call('HSET', stats, field, n)
    return n
  end
  return 0
end
local function note_change(change, n)
  return count_up(KEYS[5], change, n)
end
local function read_settings(settings, stats, protocol, worker)
  local layout, paused, slots, most, own, of_queue, of_groups = unpack(redis.call('HMGET', settings, 'layout', 'paused', 'slots', 'max_length',
    worker and 'quiet:' .. worker or '', worker and 'limits' or '', worker and 'group_limits' or ''))
  local begins = not layout
  if begins and redis.call('EXISTS', settings, stats) > 0 then
    layout = redis.call('HGET', stats, 'layout') or '1'
  end
  if layout and layout ~= protocol then
    local number = string.find(layout, '^%d%d?%d?$') and tonumber(layout) or 999
    if number < 3 or number > tonumber(protocol) then
      return string.format('%d', math.max(number, 1)), ''
    end
  end
  if not worker then
    return paused and 'paused' or '', slots or '', most and tonumber((string.match(most, '^[1-9]%d*$'))) or nil, begins
  end
  return own and string.sub(own, 1, 4) == 'stop' and 'stop' or paused and 'paused' or own and 'quiet' or '', slots or '', of_queue, of_groups, most, begins
end
local function begin(settings, stats, begins)
  if begins then
    redis.call('HSET', settings, 'layout', '3')
    redis.call('HSET', stats, 'layout', '3')
  end
end
local function make_ready(list, ids, first, withheld)
  local waiting
  if first then
    waiting = redis.call('LPUSH', list, unpack(ids))
  else
    waiting = redis.call('RPUSH', list, unpack(ids))
  end
  return withheld == '', waiting -- no wake-up while the queue is held back: resuming it wakes a worker
end
local due_when_held = 9007199254740992
local largest_possible = 1049598
local function read_request(args, n, now)
  local ids, classes = {}, {}
  local request = {
    args = args, ids = ids, classes = classes, details = {}, keys = {}, uniques = false, groups = false, timed = false,
  }
  local j, read = 1, nil
  while j <= n do
    local id, class = args[4 * j - 2], args[4 * j - 1]
    if args[4 * j] == '' and (class == '1' or class == '0' or class == '2') and id ~= '' and #id <= 200 then
      ids[j], classes[j] = id, class
      j = j + 1
    else
      read = read or seldom('requests').read_others
      local after = read(request, n, now, j)
      if not after then
        return nil, seldom('lanes').invalid('the id, the class or the time of job ' .. j .. ' is not valid')
      end
      j = after
    end
  end
  if not string.find(table.concat(ids), '^[!-z|~]+$') then
    return nil, seldom('lanes').invalid('an id has other characters than printable ASCII without spaces and braces')
  end
  return request
end
local function read_queue(ids, withheld, maximum, begins)
  local largest = tonumber((string.match(redis.call('HGET', KEYS[5], 'largest') or '', '^%d+$')))
  local present
  if #ids > 1 and not (largest and largest <= 4096) then
    present = {} -- records may be large: they are not read
    for j = 1, #ids do
      present[j] = redis.call('HEXISTS', KEYS[2], ids[j]) == 1
    end
  else
    present = redis.call('HMGET', KEYS[2], unpack(ids))
  end
  local idlers = redis.call('ZRANGE', KEYS[4], '0', '1')
  return {withheld = withheld, maximum = maximum, begins = begins, largest = largest, present = present, idlers = idlers, room = math.huge}
end
local function take_bare(request, found, intake, j)
  local args, ids, classes, details, present, room = request.args, request.ids, request.classes, request.details, found.present, found.room
  local outcomes, records, seen, fresh, longest = intake.outcomes, intake.records, intake.seen, intake.fresh, intake.longest
  local current, head, list, size -- the class of the last job, with its header, its list, and how many are there
  local n = #ids
  while j <= n do
    local id = ids[j]
    if details[j] or fresh >= room or present[j] or seen[id] then
      break
    end
    local class, envelope = classes[j], args[4 * j + 1]
    if #envelope > longest then
      longest = #envelope
    end
    if class ~= current then
      intake.ready[class] = intake.ready[class] or {}
      current, head, list = class, '\1' .. class .. '\0\0' .. intake.at .. intake.at, intake.ready[class]
      size = #list
    end
    records[2 * fresh + 1], records[2 * fresh + 2] = id, head .. envelope
    fresh, size, seen[id] = fresh + 1, size + 1, '0'
    list[size] = id
    outcomes[j] = '1'
    j = j + 1
  end
  intake.fresh, intake.longest = fresh, longest
  return j
end
local function judge_call(args, n, protocol, bounded, skew)
  local withheld, _, maximum, begins = read_settings(KEYS[13], KEYS[5], protocol)
  if tonumber(withheld) then
    return nil, seldom('lanes').other_layout(withheld, protocol)
  end
  local now = clock()
  local request, fault = read_request(args, n, now)
  if not request then
    return nil, fault
  end
  local found, special = read_queue(request.ids, withheld, maximum, begins), nil
  if request.uniques or request.groups or request.timed then
    special, fault = seldom('requests').read_special(request, now + (skew or 0), skew ~= nil)
    if fault then
      return nil, fault
    end
  end
  if maximum and bounded then
    found.room = maximum - seldom('wake').queue_length()
  end
  if special and special.uniques then
    seldom('call_uniques').find_holders(special.uniques)
  end
  local intake = {now = now, at = eight_bytes(now), outcomes = {}, records = {}, ready = {}, seen = {}, fresh = 0, longest = 4076}
  local present, details, j, judge = found.present, request.details, 1, nil
  while j <= n do
    local first, kind = j, not present[j] and (details[j] or 'p')
    if kind == 'p' then
      j = take_bare(request, found, intake, j)
    elseif kind == 'u' then
      j = seldom('call_uniques').take_with_keys(special.uniques, request, found, intake, j)
    elseif kind == 'g' then
      j = seldom('call_groups').take_in_groups(special.lines, request, found, intake, j)
    end
    if j == first then
      special, judge = special or seldom('requests').new_special(), judge or seldom('judging').judge_other
      judge(request, found, intake, special, j)
      j = j + 1
    end
  end
  return intake, found, special
end
local function write_call(found, intake, special)
  local fresh, marked, woken, first = intake.fresh, special and special.cron and special.cron.marked, false, false
  local lists, pushes = {['0'] = KEYS[7], ['1'] = KEYS[8], ['2'] = KEYS[9]}, 0
  for class in pairs(intake.ready) do
    pushes = pushes + 1
    if pushes > 1 then -- the first one is the first write
      redis.call('LLEN', lists[class])
    end
  end
  if special and special.replaced then
    redis.call('HLEN', KEYS[12])
  end
  begin(KEYS[13], KEYS[5], found.begins and (fresh > 0 or marked))
  if fresh > 0 then
    for class, ids in pairs(intake.ready) do
      woken = make_ready(lists[class], ids, false, found.withheld)
    end
    if special then
      woken = seldom('arrivals').put_special(found, intake, special, woken)
    end
    redis.call('HSET', KEYS[2], unpack(intake.records))
    if woken and found.idlers[1] then
      seldom('wake').wake_one(KEYS[4], nil, found.idlers)
    end
    first = note_change('enqueued', fresh) == fresh -- these are the first jobs: the queue is new, or was removed
    local largest, longest = found.largest, intake.longest + 20
    if not largest and redis.call('HLEN', KEYS[2]) > fresh then
      longest = math.max(longest, largest_possible) -- another program put the other records in
    end
    if not largest or longest > largest then
      redis.call('HSET', KEYS[5], 'largest', digits(longest)) -- claims use it to limit their replies
      found.largest = longest
    end
  end
  if special and special.uniques and special.uniques.updated then
    seldom('arrivals').update_waiting(special.uniques.updated, intake.now, found.largest)
  end
  if marked then
    redis.call('HSET', KEYS[6], unpack(marked))
  end
  return first
end
seldom = function(chapter)
local functions = made[chapter]
if functions then
return functions
end
if chapter == 'lanes' then
functions = {
denied_command = function(commands)
  for _, command in ipairs(commands) do
    if not redis.acl_check_cmd(unpack(command)) then
      return command[1] .. ' on ' .. (command[2] or 'the server')
    end
  end
end,
reply_again = function(outcomes, met)
  local first, list, texts = string.sub(outcomes, 1, 1), {}, {}
  if outcomes == string.rep(first, #outcomes) then
    list[1] = first
  else
    for j = 1, #outcomes do
      list[j] = string.sub(outcomes, j, j)
    end
  end
  for text in string.gmatch(met, '[^ ]+') do
    texts[#texts + 1] = text
  end
  return {'ok', clock(), list, texts, 'new'} -- it may have been
end,
invalid = function(what)
  return redis.error_reply('ERR signalbox: ' .. what)
end,
other_layout = function(withheld, protocol)
  return redis.error_reply('LAYOUT ' .. withheld .. ' signalbox: the layout of the queue is not one that protocol ' .. protocol .. ' knows')
end,
}
end
if chapter == 'wake' then
functions = {
send = function(address, message)
  local channel, got = string.sub(address, 2), nil
  if string.sub(address, 1, 1) == 's' then
    got = redis.pcall('SPUBLISH', channel, message)
  else
    got = redis.pcall('PUBLISH', channel, message)
  end
  return type(got) == 'number' and got or nil
end,
queue_length = function()
  return redis.call('HLEN', KEYS[2]) - redis.call('ZCARD', KEYS[10]) - redis.call('ZCARD', KEYS[11]) - redis.call('ZCARD', KEYS[14])
end,
wake_one = function(idle, except, longest)
  for _ = 1, 1000 do
    local first, second = unpack(longest or redis.call('ZRANGE', idle, '0', '1'))
    longest = nil
    local address = first == except and second or first
    if not address or address == except then
      return
    end
    local got = made.wake.send(address, 'work')
    if not got then
      return -- the user lacks a right; workers find out when they renew their sessions
    end
    redis.call('ZREM', idle, address)
    if got > 0 then
      if second then
        local other, last = unpack(redis.call('ZRANGE', idle, -2, -1))
        last = last or other
        if last == except then
          last = other
        end
        if last ~= except then
          made.wake.send(last, 'standby')
        end
      end
      return
    end
  end
end,
}
end
if chapter == 'record' then
local suspect_at = 2
local byte_at = string.byte
local longest_time = 864000000000000
local wide = string.format('%016d', 4294967296) == '0000004294967296' and '%s%s\1%016d%s' or '%s%s\1%016.0f%s'
functions = {
appended = function(list, a, b)
  list = list or {}
  local n = #list
  list[n + 1], list[n + 2] = a, b
  return list
end,
has_header = function(record)
  return #record >= 20 and string.find(record, '^[\1-\31][012]') ~= nil
end,
due_of = function(record)
  local a, b, c, d, e, f, g, h = string.byte(record, 13, 20)
  return ((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g) * 256 + h
end,
class_of = function(record)
  if not made.record.has_header(record) then
    return '1'
  end
  return string.byte(record, 3) >= suspect_at and 's' or string.sub(record, 2, 2)
end,
extras_in = function(record)
  if not made.record.has_header(record) then
    return 0
  end
  local flags, high, low = byte_at(record, 4), byte_at(record, 21, 22)
  local last = low and 22 + high * 256 + low
  if flags == 0 or not last or last > #record then
    return 0
  end
  return flags, 23, last
end,
part_at = function(flag, flags, text, at)
  if flags % 2 == 1 then
    at = at + 1 + (byte_at(text, at) or 0)
  end
  if flag > 2 and flags % 4 >= 2 then
    at = at + 8
  end
  if flag > 4 and flags % 8 >= 4 then
    local high, low = byte_at(text, at, at + 1)
    at = at + 2 + (high or 0) * 256 + (low or 0)
  end
  if flag > 8 and flags % 16 >= 8 then
    at = at + 8
  end
  if flag > 32 and flags % 64 >= 32 then
    at = at + 5
  end
  return at
end,
number_at = function(text, at, most)
  local a, b, c, d, e, f, g, h = byte_at(text, at, at + 7)
  return math.min(((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g) * 256 + h, most)
end,
group_of = function(record)
  if not made.record.has_header(record) or byte_at(record, 4) % 2 == 0 then
    return nil
  end
  local high, low, size, kind = byte_at(record, 21, 24)
  if not kind or size < 2 or kind ~= 103 and kind ~= 115 then -- 'g', 's'
    return nil
  end
  local last = 22 + high * 256 + low
  if 23 + size > last or last > #record then
    return nil
  end
  return string.sub(record, 24, 23 + size)
end,
later_class = function(class)
  return string.char(string.byte(class) + 49)
end,
due_member = function(record, id)
  return (made.record.group_of(record) and made.record.later_class(string.sub(record, 2, 2)) or made.record.class_of(record)) .. id
end,
line_at = function(class, key, us, id)
  return string.format(wide, class, key, us, id)
end,
line_of = function(record, key, id)
  return made.record.line_at(string.sub(record, 2, 2), key, made.record.due_of(record), id)
end,
unique_part = function(flags, text, from, to)
  if flags % 8 < 4 then
    return nil
  end
  local first = made.record.part_at(4, flags, text, from)
  local high, low, scope = byte_at(text, first, first + 2)
  local last = low and first + 1 + high * 256 + low or to + 1
  if not scope or last > to then
    return nil
  end
  local at, us = first + 2
  first = first + 3
  if scope == 119 or scope == 116 then -- 'w', 't'
    if first + 8 > last then
      return nil
    end
    us, first = made.record.number_at(text, first, longest_time), first + 8
  elseif scope ~= 115 and scope ~= 101 and scope ~= 83 then -- 's', 'e', 'S'
    return nil
  end
  if first > last then
    return nil
  end
  return string.char(scope), string.sub(text, first, last), us, at
end,
expiry_of = function(record)
  local flags, first, last = made.record.extras_in(record)
  first = flags % 16 >= 8 and made.record.part_at(8, flags, record, first)
  if not first or first + 7 > last then
    return nil
  end
  local us, due, kind = made.record.number_at(record, first, longest_time), made.record.due_of(record), byte_at(record, first)
  if us == 0 or kind == 129 or due >= due_when_held then
    return nil, first
  elseif kind == 128 then -- a deadline: the other seven bytes
    return math.max(made.record.number_at('\0' .. string.sub(record, first + 1, first + 7), 1, 9007199254740991), 1), first
  end
  return math.min(due + us, 9007199254740991), first -- a double holds no more
end,
record_of = function(detail, class, at, due_at, envelope)
  local extras = detail.extras
  if not extras then
    return detail.version .. class .. '\0\0' .. at .. due_at .. envelope, #envelope
  end
  local part = #extras - 2
  return detail.version .. class .. '\0' .. string.sub(extras, 2, 2) .. at .. due_at
    .. string.char(math.floor(part / 256), part % 256) .. string.sub(extras, 3) .. envelope, #envelope + #extras
end,
}
end
if chapter == 'places' then
functions = {
terminal_states = function()
  return {
    dead = {set = KEYS[10], bytes = 'dead_bytes', met = 'd'},
    cancelled = {set = KEYS[11], bytes = 'cancelled_bytes', met = 'c'},
    completed = {set = KEYS[14], bytes = 'completed_bytes', met = 'f'},
  }
end,
}
end
if chapter == 'retention' then
functions = {
forget = function(state, id, bytes)
  redis.call('ZREM', state.set, id)
  return count_up(KEYS[5], state.bytes, 0 - bytes) -- of 0 bytes -bytes is "-0", which is no integer
end,
}
end
if chapter == 'uniques' then
functions = {
drop_windows = function(now, most)
  local over = redis.call('ZRANGE', KEYS[19], '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, most)
  if #over == 0 then
    return 0
  end
  local gone, values = {}, redis.call('HMGET', KEYS[18], unpack(over))
  for i = 1, #over do
    local till = values[i] and string.match(values[i], '^(%d+) ')
    if till and tonumber(till) <= now then
      gone[#gone + 1] = over[i]
    end
  end
  redis.call('ZREM', KEYS[19], unpack(over))
  if #gone > 0 then
    redis.call('HDEL', KEYS[18], unpack(gone))
  end
  return #over
end,
}
end
if chapter == 'groups' then
local turn_span = 1125899906842624
functions = {
lines_of_groups = function(limits)
  local g = {bounded = limits and limits.bounded, timed = limits and limits.timed} -- bounded: groups may have limits; timed: rates, or may be held back
  local states, order = {}, {} -- by key: the states of its lines ('.', 't', 'b', 'w') in [1] to [3], and what state_of and group_limits say; the keys
  local byte, huge = string.byte, math.huge -- a local is read faster
  local counts = {} -- numbers in digits
  local parsed = {} -- values of GROUPS: the states of the lines and how many jobs hold the group
  local tails = {} -- by class: the score of the last turn
  local numbers = {['0'] = 1, ['1'] = 2, ['2'] = 3, [0] = 1, [1] = 2, [2] = 3} -- where a state has the line of a class

  local function parse(value)
    local high, normal, low, holders = string.match(value, '^([.tbw])([.tbw])([.tbw])(%d+)$')
    return high and {high, normal, low, tonumber(holders)} or {'.', '.', '.', 0}
  end

  local function state_of(key, p)
    local own = limits and (key ~= 'g{}' and limits.usual or limits.none) -- 'g{}' is of jobs without a group
    local s = { -- with all fields that each state has, so that Lua makes room for them once
      p[1], p[2], p[3], holders = p[4], changed = false, limits = own,
      most = byte(key) == 115 and 1 or own and own.running or huge, -- how many jobs may hold the group at a time. 's' is for a serial one
    }
    order[#order + 1] = key
    states[key] = s
    return s
  end

  function g.load(keys, joins)
    local missing, n = {}, 0
    for i = 1, #keys do
      local key = keys[i]
      if not states[key] then
        n = n + 1
        states[key], missing[n] = true, key
      end
    end
    if n > 0 then
      local values = redis.call('HMGET', KEYS[17], unpack(missing))
      for i = 1, n do
        local key, value = missing[i], values[i] or ''
        local p = parsed[value]
        if not p then
          p = parse(value)
          parsed[value] = p
        end
        if joins then
          states[key] = p
        else
          state_of(key, p)
        end
      end
      if limits then
        limits.load(states, missing)
      end
    end
  end

  function g.of(key)
    return states[key]
  end

  function g.room(key)
    local s = states[key]
    return s.most - s.holders
  end

  function g.holders(key)
    return states[key].holders
  end

  function g.allowed(s, now)
    if not limits or not s.limits.rated and not s.held_until then
      return math.huge, 0
    end
    return limits.allowed(s, now)
  end

  function g.again(key, now)
    local s = states[key]
    local allowed, pause = s.limits.allowed(s.at, now)
    if allowed > 0 and s.limits.rated then
      limits.started(key, s, 1, now)
    end
    return pause
  end

  function g.state(key, class)
    return states[key][numbers[class]]
  end

  function g.set(key, class, state)
    local s = states[key]
    s[numbers[class]], s.changed = state, true
  end

  function g.turn(key, class, turns)
    if not tails[class] then
      local base = tonumber(class) * turn_span
      local last = redis.call('ZRANGE', KEYS[16], '(' .. digits(base + turn_span), digits(base), 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
      tails[class] = tonumber(last[2]) or base
    end
    tails[class] = tails[class] + 1
    local n = #turns
    turns[n + 1], turns[n + 2] = digits(tails[class]), class .. key
    local s = states[key]
    s[numbers[class]], s.changed = 't', true
  end

  function g.join(members, keys, classes)
    local rows, turns, any = {}, {}, false
    for i = 1, #members do
      local class, key
      if keys then
        class, key = classes[i], keys[i]
      else
        class, key = string.match(members[i], '^(.)([^\1]+)\1')
      end
      rows[2 * i - 1], rows[2 * i] = '0', members[i]
      local state = states[key][numbers[class]]
      if state == '.' then
        if not states[key].holders then
          state_of(key, states[key])
        end
        if g.room(key) > 0 then
          g.turn(key, class, turns)
          any = true
        else
          g.set(key, class, 'b')
        end
      elseif state == 't' then
        any = true
      end
    end
    redis.call('ZADD', KEYS[15], unpack(rows))
    if #turns > 0 then
      redis.call('ZADD', KEYS[16], unpack(turns))
    end
    return any
  end

  function g.quit(member)
    if redis.call('ZREM', KEYS[15], member) == 0 then
      return false
    end
    local class, key = string.match(member, '^(.)([^\1]+)\1')
    local line = class .. key
    if #redis.call('ZRANGE', KEYS[15], '[' .. line .. '\1', '(' .. line .. '\2', 'BYLEX', 'LIMIT', 0, 1) == 0 then
      redis.call('ZREM', KEYS[16], line)
      g.set(key, class, '.')
    end
    return true
  end

  function g.leave(keys)
    g.load(keys)
    for i = 1, #keys do
      local s = states[keys[i]]
      s.holders, s.changed = math.max(s.holders - 1, 0), true
    end
  end

  function g.save()
    local turns, set, gone, n = {}, {}, {}, 0
    for i = 1, #order do
      local key = order[i]
      local s = states[key]
      if s.changed then
        if s.most > s.holders then
          for class = 0, 2 do
            if s[class + 1] == 'b' then
              g.turn(key, tostring(class), turns)
            end
          end
        end
        local holders = s.holders
        counts[holders] = counts[holders] or digits(holders)
        local value = s[1] .. s[2] .. s[3] .. counts[holders]
        if value == '...0' then
          gone[#gone + 1] = key
        else
          set[n + 1], set[n + 2] = key, value
          n = n + 2
        end
        s.changed = false
      end
    end
    if #turns > 0 then
      redis.call('ZADD', KEYS[16], unpack(turns))
    end
    if n > 0 then
      redis.call('HSET', KEYS[17], unpack(set))
    end
    if #gone > 0 then
      redis.call('HDEL', KEYS[17], unpack(gone))
    end
    return #turns > 0
  end

  function g.hold(key, n, now)
    local s = states[key]
    s.holders, s.changed = s.holders + n, true
    if now and n > 0 and s.limits and s.limits.rated then
      limits.started(key, s, n, now)
    end
  end

  return g
end,
}
end
if chapter == 'cron' then
functions = {
entries_of_call = function(names, overlaps, reckoned, reckons)
  local cron = {reckoned = reckoned, reckons = reckons, marks = {}, plans = {}, since = {}, paused = {}, jobs = {}, marked = false}
  local fields = {}
  local function prefixed(prefix)
    for i = 1, #names do
      fields[i] = prefix .. names[i]
    end
    return unpack(fields)
  end
  local marks = redis.call('HMGET', KEYS[6], unpack(names))
  local plans = redis.call('HMGET', KEYS[6], prefixed('plan '))
  local pauses = redis.call('HMGET', KEYS[13], prefixed('cron:'))
  for i, name in ipairs(names) do
    local plan, since = string.match(plans[i] or '', '^(%x+) (%d+) ')
    cron.plans[name], cron.since[name], cron.paused[name] = plan, tonumber(since), pauses[i]
    cron.marks[name] = tonumber(marks[i] or -1)
    if not cron.marks[name] then
      return nil, (made.lanes or seldom('lanes')).invalid('the last tick of a cron entry is no number: is another program writing to this queue?')
    end
  end
  if overlaps then
    for i, list in ipairs(redis.call('HMGET', KEYS[6], prefixed('jobs '))) do
      cron.jobs[names[i]] = list or ''
    end
  end

  function cron.judge(entry, us)
    local name, reckoned = entry.name, cron.reckoned
    local mark, plan = cron.marks[name], cron.plans[name]
    local ahead = cron.reckons and mark > reckoned + 10000000
    if us > reckoned then
      return 'e', ahead
    elseif entry.plan and plan and entry.plan ~= plan then
      return 'x', ahead
    elseif us <= mark and not ahead then
      return 't', ahead
    elseif us < reckoned - 5000000 and not (entry.plan and plan and us > cron.since[name] and us >= reckoned - entry.late) then
      return 'l', ahead
    end
    cron.marks[name] = us
    cron.marked = (made.record or seldom('record')).appended(cron.marked, name, digits(us))
    return cron.paused[name] and 'p' or nil, ahead
  end

  local function keeps_turn(id, group)
    local record = redis.call('HGET', KEYS[2], id)
    return not record or (made.record or seldom('record')).group_of(record) ~= group
      or redis.call('ZSCORE', KEYS[15], (made.record or seldom('record')).line_of(record, group, id))
      or redis.call('ZSCORE', KEYS[3], (made.record or seldom('record')).later_class(string.sub(record, 2, 2)) .. id)
  end

  function cron.judge_overlap(ended, seen, entry, id, group, new)
    local live, stays_out = {}, false
    for other in string.gmatch(cron.jobs[entry.name], '[!-z|~]+') do
      local gone = not seen[other] and redis.call('HEXISTS', KEYS[2], other) == 0
      for _, state in pairs(ended) do
        gone = gone or redis.call('ZSCORE', state.set, other)
      end
      if not gone then
        live[#live + 1] = other
        stays_out = stays_out or entry.overlap == 's' or entry.overlap == 'q' and (seen[other] or keeps_turn(other, group))
      end
    end
    if stays_out then
      return 'o'
    elseif new then
      table.insert(live, 1, id)
      cron.jobs[entry.name] = table.concat(live, ' ', 1, math.min(#live, 8))
      cron.marked = (made.record or seldom('record')).appended(cron.marked, 'jobs ' .. entry.name, cron.jobs[entry.name])
    end
  end

  return cron
end,
}
end
if chapter == 'call_uniques' then
functions = {
uniques_of_call = function(keys)
  redis.call('ZCARD', KEYS[19])
  local owners, values = {}, redis.call('HMGET', KEYS[18], unpack(keys))
  for i = 1, #keys do
    if values[i] then
      owners[keys[i]] = values[i]
    end
  end
  return {
    owners = owners, states = {}, moving = {}, taken = {}, windows = false, cut_short = false, updated = false,
    heads = {['0'] = {}, ['1'] = {}, ['2'] = {}},
  }
end,
find_holders = function(u)
  local states, moving, others = u.states, u.moving, {}
  for _, value in pairs(u.owners) do
    local other = string.match(value, ' (.+)$')
    if other and not states[other] then
      states[other] = redis.call('HEXISTS', KEYS[2], other) == 1 and '0' or 'g'
      if states[other] == '0' then
        others[#others + 1] = other
      end
    end
  end
  if #others == 0 then
    return
  end
  for _, state in pairs((made.places or seldom('places')).terminal_states()) do
    if redis.call('ZCARD', state.set) > 0 then
      for i, score in ipairs(redis.call('ZMSCORE', state.set, unpack(others))) do
        states[others[i]] = score and state.met or states[others[i]]
      end
    end
  end
  for _, class in ipairs({'1', '0', '2', 'b', 'a', 'c', 's'}) do
    local left, members = {}, {}
    for _, other in ipairs(others) do
      if states[other] == '0' then
        left[#left + 1], members[#members + 1] = other, class .. other
      end
    end
    if #left == 0 or redis.call('ZCARD', KEYS[3]) == 0 then
      break
    end
    for i, score in ipairs(redis.call('ZMSCORE', KEYS[3], unpack(members))) do
      if score then
        states[left[i]], moving[left[i]] = 's', tonumber(score) >= due_when_held -- it is being moved
      end
    end
  end
end,
take_with_keys = function(u, request, found, intake, j)
  local args, ids, classes, details, keys, present, room = request.args, request.ids, request.classes, request.details, request.keys, found.present, found.room
  local outcomes, records, seen, ready, fresh, longest = intake.outcomes, intake.records, intake.seen, intake.ready, intake.fresh, intake.longest
  local owners, taken, heads, byte, n = u.owners, u.taken, u.heads, string.byte, #ids
  local k = #taken
  while j <= n do
    local id, key = ids[j], keys[j]
    if details[j] ~= 'u' or fresh >= room or present[j] or seen[id] or owners[key] then
      break
    end
    local class, text, envelope = classes[j], args[4 * j - 1], args[4 * j + 1]
    if #envelope + #text - 1 > longest then
      longest = #envelope + #text - 1
    end
    local scope = byte(text, 6)
    local shape = #text * 256 + scope
    local head = heads[class][shape]
    if not head then
      local part = #text - 3
      head = '\1' .. class .. '\0\4' .. intake.at .. intake.at .. string.char(math.floor(part / 256), part % 256) .. string.sub(text, 4, 6)
      heads[class][shape] = head
    end
    records[2 * fresh + 1], records[2 * fresh + 2] = id, head .. key .. envelope
    fresh, seen[id] = fresh + 1, '0'
    local holder = (scope == 101 and 'e ' or 's ') .. id
    owners[key] = holder
    taken[k + 1], taken[k + 2] = key, holder
    k = k + 2
    local list = ready[class]
    if list then
      list[#list + 1] = id
    else
      ready[class] = {id}
    end
    outcomes[j] = '1'
    j = j + 1
  end
  intake.fresh, intake.longest = fresh, longest
  return j
end,
meet_key = function(u, request, j, detail, intake)
  local value, scope = u.owners[detail.key], detail.scope
  if not value then
    return nil
  end
  local till, other = string.match(value, '^(%w+) (.+)$')
  local ends, state = tonumber(till), intake.seen[other] or u.states[other]
  if ends and ends > intake.now and scope == 't' then
    return nil, ends
  elseif ends and ends > intake.now or not ends and (state == '0' or state == 's') then
    local updates = detail.update and till == scope and (scope == 's' or scope == 't') and not u.moving[other]
    if updates then -- it hasn't started
      u.updated = u.updated or {}
      table.insert(u.updated, {id = other, class = request.classes[j], detail = detail, envelope = request.args[4 * j + 1]})
    end
    u.met = u.met or {}
    table.insert(u.met, state .. other)
    return updates and 'U' or 'u'
  end
end,
take_key = function(u, detail, id, now, ends)
  local key = detail.key
  local till = detail.scope == 'w' and digits(now + detail.window)
  u.owners[key] = (till or detail.scope) .. ' ' .. id
  u.taken = (made.record or seldom('record')).appended(u.taken, key, u.owners[key])
  if till then
    u.windows = (made.record or seldom('record')).appended(u.windows, till, key)
  end
  if ends then
    u.cut_short = (made.record or seldom('record')).appended(u.cut_short, key)
  end
end,
put_keys = function(u, now)
  if #u.taken == 0 then
    return
  end
  redis.call('HSET', KEYS[18], unpack(u.taken))
  if u.windows then
    redis.call('ZADD', KEYS[19], unpack(u.windows))
    seldom('uniques').drop_windows(now, 10 + #u.windows)
  end
  if u.cut_short then
    redis.call('ZREM', KEYS[19], unpack(u.cut_short)) -- the job that is due then has the key; the window may be of this call
  end
end,
}
end
if chapter == 'call_groups' then
functions = {
lines_of_call = function()
  redis.call('ZCARD', KEYS[15])
  redis.call('ZCARD', KEYS[16])
  redis.call('HLEN', KEYS[17])
  redis.call('ZCARD', KEYS[20]) -- a job that expires has a group
  local place = tonumber((string.match(redis.call('HGET', KEYS[5], 'place') or '', '^%d+$'))) or 0
  return {
    members = {}, keys = {}, classes = {}, place = place,
    bytes = {}, ones = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}, lengths = {},
  }
end,
take_in_groups = function(lines, request, found, intake, j)
  local args, ids, classes, details, groups, present, room = request.args, request.ids, request.classes, request.details, request.keys, found.present, found.room
  local outcomes, records, seen, now, fresh, longest = intake.outcomes, intake.records, intake.seen, intake.now, intake.fresh, intake.longest
  local members, keys, place, bytes, ones, lengths = lines.members, lines.keys, lines.place, lines.bytes, lines.ones, lines.lengths
  local head = '\0\1' .. intake.at -- of a record: what follows the class
  local stamped, stamp_head, rounded, place_head -- see below
  local n, k = #ids, #members
  while j <= n do
    local id = ids[j]
    if details[j] ~= 'g' or fresh >= room or present[j] or seen[id] then
      break
    end
    local class, group, envelope = classes[j], groups[j], args[4 * j + 1]
    if #envelope + #group + 3 > longest then
      longest = #envelope + #group + 3
    end
    place = place >= now and place + 1 or now
    local low, last = place % 256, place % 10
    if place - low ~= stamped then
      stamped, stamp_head = place - low, string.sub(eight_bytes(place), 1, 7)
    end
    if place - last ~= rounded then
      rounded, place_head = place - last, '\1' .. string.format('%015.0f', math.floor(place / 10))
    end
    bytes[low] = bytes[low] or string.char(low)
    lengths[#group] = lengths[#group] or string.char(0, #group + 1, #group)
    records[2 * fresh + 1], records[2 * fresh + 2] = id, '\1' .. class .. head .. stamp_head .. bytes[low] .. lengths[#group] .. group .. envelope
    fresh, k, seen[id] = fresh + 1, k + 1, '0'
    keys[k], lines.classes[k], members[k] = group, class, class .. group .. place_head .. ones[last] .. id
    outcomes[j] = '1'
    j = j + 1
  end
  intake.fresh, intake.longest, lines.place = fresh, longest, place
  return j
end,
put_lines = function(lines)
  local g = (made.groups or seldom('groups')).lines_of_groups()
  g.load(lines.keys, true)
  local any = g.join(lines.members, lines.keys, lines.classes)
  g.save()
  redis.call('HSET', KEYS[5], 'place', digits(lines.place))
  return any
end,
}
end
if chapter == 'requests' then
functions = {
new_details = function(cautious, version, update)
  return { -- with the fields that many have, so that Lua makes room for these once: it makes it for 8, or for 16
    cautious = cautious, version = version, update = update, extras = false, group = false, scope = false, key = false, us = false,
  }
end,
read_short = function(request, n, j)
  local args, ids, classes, details, keys = request.args, request.ids, request.classes, request.details, request.keys
  local byte, sub = string.byte, string.sub -- a local is read faster
  local uniques, groups = request.uniques, request.groups
  for j = j, n do
    local id, class = args[4 * j - 2], args[4 * j - 1]
    local digit, plus, flags, a, b, c = byte(class, 1, 6)
    local name = digit == 49 and '1' or digit == 48 and '0' or digit == 50 and '2'
    if plus ~= 43 or args[4 * j] ~= '' or not name or id == '' or #id > 200 then -- '+'
      return j
    elseif flags == 4 and (c == 101 or c == 115) and a * 256 + b == #class - 5 and #class > 6 and #class < 409 then -- scope 'e' or 's'
      local key = sub(class, 7)
      if not uniques then
        uniques = {}
        request.uniques = uniques
      end
      details[j], keys[j] = 'u', key
      uniques[#uniques + 1] = key
    elseif flags == 1 and (b == 103 or b == 115) and a == #class - 4 and a > 1 and a < 202 then -- 'g' or 's'
      local key = sub(class, 5)
      if not groups or not groups[key] then
        if not string.find(key, '^[sg][!-z|~]+$') then
          return j
        end
        groups = groups or {}
        groups[key], request.groups = true, groups
      end
      details[j], keys[j] = 'g', key
    else
      return j
    end
    ids[j], classes[j] = id, name
  end
  return n + 1
end,
read_extras = function(request, detail, extras)
  local plus, flags, size = string.byte(extras, 1, 3)
  if plus ~= 43 or not flags or flags == 0 or #extras > 1002 then
    return false
  end
  detail.extras = extras
  if flags % 2 == 1 then
    size = size or 0
    local group = string.sub(extras, 4, 3 + size)
    local groups = request.groups or {}
    if not groups[group] and (#group < size or size > 201 or not string.find(group, '^[sg][!-z|~]+$') and not (flags % 16 >= 8 and group == 'g{}')) then
      return false
    end
    detail.group, groups[group], request.groups = group, true, groups
  elseif flags % 16 >= 8 then
    return false -- a job that expires waits in a line
  end
  if flags % 8 >= 4 then
    local scope, key, window = (made.record or seldom('record')).unique_part(flags, extras, 3, #extras)
    if not scope or scope == 'S' or #key > 402 then
      return false
    end
    detail.scope, detail.key = scope, key
    if window then
      detail.window = window
    end
    request.uniques, request.timed = request.uniques or {}, request.timed or scope == 't'
    request.uniques[#request.uniques + 1] = key
  end
  return true
end,
read_entry = function(request, detail, name, plan, late, overlap, run)
  if not name or #name > 200 or overlap == 'q' and string.sub(detail.group or '', 1, 1) ~= 's' then
    return false
  end
  detail.entry = {name = name, plan = plan ~= '' and plan, late = tonumber(late), overlap = overlap ~= '' and overlap, run = run}
  request.entries, request.overlaps = request.entries or {}, request.overlaps or overlap ~= ''
  request.entries[#request.entries + 1] = name
  return true
end,
read_time = function(request, detail, when, now)
  request.timed = true
  local sign, us, rest = string.match(when, '^([+@=])(%d+)(.*)$')
  if not sign then
    local name, overlap = string.match(when, '^&([!-z|~]+) ([sqc])$')
    detail.us = 0
    return made.requests.read_entry(request, detail, name, '', '', overlap, true)
  end
  detail.us = tonumber(us)
  if sign == '=' then
    local name, plan, late, overlap = string.match(rest, '^ ([!-z|~]+) ?(%x*) ?(%d*) ?([sqc]?)$')
    return name and (plan == '') == (late == '') and (overlap == '' or plan ~= '') and not detail.key
      and made.requests.read_entry(request, detail, name, plan, late, overlap, false)
  end
  detail.us = math.min(sign == '+' and now + detail.us or detail.us, 9007199254740991) -- in the year 2255; a double holds no more
  return rest == ''
end,
read_details = function(request, text, when, now)
  local class, mark, other, star, most, extras = string.match(text, '^[012]'), '', '', '', '', ''
  local second = string.byte(text, 2)
  if second == 43 then -- '+': most have no marks
    extras = string.sub(text, 2)
  elseif second then
    class, mark, other, star, most, extras = string.match(text, '^([012])(!?)(~?)(%*?)(%d*)(.*)$')
  end
  if not class or most ~= '' and (star == '' or #most > 16) then
    return nil
  end
  local detail = made.requests.new_details(mark == '!', other == '~' and '\2' or '\1', star == '*' and (tonumber(most) or math.huge))
  if extras ~= '' and not made.requests.read_extras(request, detail, extras) or when ~= '' and not made.requests.read_time(request, detail, when, now) then
    return nil
  end
  return class, detail
end,
read_others = function(request, n, now, j)
  local after = made.requests.read_short(request, n, j)
  if after == j then
    local id, class, detail = request.args[4 * j - 2], made.requests.read_details(request, request.args[4 * j - 1], request.args[4 * j], now)
    if not class or id == '' or #id > 200 then
      return nil
    end
    request.ids[j], request.classes[j], request.details[j], after = id, class, detail, j + 1
  end
  return after
end,
new_special = function()
  return {lines = false, uniques = false, cron = false, earliest = false, due = false, expires = false, stamps = {}}
end,
read_special = function(request, reckoned, reckons)
  local special, fault = made.requests.new_special(), nil
  special.lines = request.groups and (made.call_groups or seldom('call_groups')).lines_of_call()
  special.uniques = request.uniques and (made.call_uniques or seldom('call_uniques')).uniques_of_call(request.uniques)
  special.earliest = request.timed and redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  if request.entries then
    special.cron, fault = (made.cron or seldom('cron')).entries_of_call(request.entries, request.overlaps, reckoned, reckons)
    if fault then
      return nil, fault
    end
  end
  return special
end,
denied_enqueue = function()
  local denied = redis.acl_check_cmd and (made.lanes or seldom('lanes')).denied_command({
    {'RPUSH', KEYS[7], ''}, {'RPUSH', KEYS[8], ''}, {'RPUSH', KEYS[9], ''}, {'ZADD', KEYS[3], '0', ''},
    {'HSET', KEYS[2], '', ''}, {'HSET', KEYS[5], '', ''}, {'HSET', KEYS[6], '', ''}, {'HINCRBY', KEYS[5], '', '1'},
    {'LPUSH', KEYS[7], ''}, {'ZREM', KEYS[4], ''}, {'ZRANGE', KEYS[4], '0', '0'}, {'PUBLISH', KEYS[4], ''}, {'SPUBLISH', KEYS[4], ''},
    {'SET', KEYS[1], ''}, {'ZREM', KEYS[10], ''}, {'ZREM', KEYS[11], ''}, {'ZREM', KEYS[14], ''}, {'HDEL', KEYS[12], ''},
    {'HMGET', KEYS[2], ''}, {'HMGET', KEYS[6], ''}, {'HGET', KEYS[5], ''}, {'HEXISTS', KEYS[2], ''}, {'HSTRLEN', KEYS[2], ''},
    {'HLEN', KEYS[2]}, {'HLEN', KEYS[12]}, {'ZCARD', KEYS[10]}, {'LLEN', KEYS[7]}, {'LLEN', KEYS[8]}, {'LLEN', KEYS[9]},
    {'HMGET', KEYS[13], ''}, {'EXISTS', KEYS[13]}, {'TIME'}, {'ZRANGE', KEYS[3], '0', '0'},
    {'ZSCORE', KEYS[3], ''}, {'ZSCORE', KEYS[10], ''}, {'ZSCORE', KEYS[11], ''}, {'ZSCORE', KEYS[14], ''}, {'ZMSCORE', KEYS[3], ''},
  })
  return denied and redis.error_reply('NOPERM signalbox: the Redis user may not run ' .. denied .. ', which an enqueue needs')
end,
}
end
if chapter == 'judging' then
functions = {
ended_states = function(special)
  special.ended = special.ended or (made.places or seldom('places')).terminal_states()
  return special.ended
end,
judge_present = function(special, id, replaces)
  for _, state in pairs(made.judging.ended_states(special)) do
    if redis.call('ZSCORE', state.set, id) then
      if not replaces then
        return state.met
      end
      return string.upper(state.met), {id, state, redis.call('HSTRLEN', KEYS[2], id)}
    end
  end
  for _, class in ipairs({'0', '1', '2', 's', 'a', 'b', 'c'}) do
    if redis.call('ZSCORE', KEYS[3], class .. id) then
      return 's'
    end
  end
  return '0'
end,
put_job = function(request, intake, special, j, detail, us, later)
  local id, class, group, lines = request.ids[j], request.classes[j], detail.group, special.lines
  if group and not us then
    lines.place = math.max(lines.place + 1, intake.now)
    us = lines.place
  end
  local due_at = intake.at
  if us then
    local low, stamps = us % 256, special.stamps
    stamps[us - low] = stamps[us - low] or string.sub(eight_bytes(us), 1, 7)
    due_at = stamps[us - low] .. string.char(low)
  end
  local record, size = (made.record or seldom('record')).record_of(detail, class, intake.at, due_at, request.args[4 * j + 1])
  intake.longest = math.max(intake.longest, size)
  intake.records[2 * intake.fresh + 1], intake.records[2 * intake.fresh + 2] = id, record
  intake.fresh, intake.seen[id] = intake.fresh + 1, later and 's' or '0'
  if later then
    local due = special.due or {}
    local k = #due
    due[k + 1], due[k + 2], special.due = digits(us), (group and (made.record or seldom('record')).later_class(class) or class) .. id, due
  elseif group then
    local k = #lines.members + 1
    lines.keys[k], lines.classes[k], lines.members[k] = group, class, (made.record or seldom('record')).line_at(class, group, us, id)
  else
    intake.ready[class] = (made.record or seldom('record')).appended(intake.ready[class], id)
  end
  local expires = detail.extras and string.byte(detail.extras, 2) % 16 >= 8 and (made.record or seldom('record')).expiry_of(record)
  if expires then
    special.expires = (made.record or seldom('record')).appended(special.expires, digits(expires), id)
  end
end,
admit = function(request, found, intake, special, j, detail, full)
  local id, now, ticks, us = request.ids[j], intake.now, detail.entry and not detail.entry.run, detail.us
  local outcome, old = intake.seen[id], nil
  if not outcome and found.present[j] then
    outcome, old = made.judging.judge_present(special, id, not detail.cautious and not ticks)
  end
  if outcome and not old then
    return ticks and 't' or outcome -- 't': the tick's mark was missing, but its job exists
  end
  if detail.key then
    local met, ends = (made.call_uniques or seldom('call_uniques')).meet_key(special.uniques, request, j, detail, intake)
    if met then
      return met
    end
    us = ends or us
    if not full then
      seldom('call_uniques').take_key(special.uniques, detail, id, now, ends)
    end
  end
  if full then
    return 'n' -- a job that has ended stays
  end
  if old then
    special.replaced = (made.record or seldom('record')).appended(special.replaced, old)
  end
  local later = not ticks and us and us > now
  made.judging.put_job(request, intake, special, j, detail, (ticks or later) and us, later)
  return outcome or '1'
end,
details_of = function(request, j)
  local kind, key, text = request.details[j], request.keys[j], request.args[4 * j - 1]
  if kind and kind ~= 'u' and kind ~= 'g' then
    return kind
  end
  local detail = (made.requests or seldom('requests')).new_details(false, '\1', false)
  detail.extras = kind and string.sub(text, 2)
  if kind == 'u' then
    detail.scope, detail.key = string.sub(text, 6, 6), key
  elseif kind then
    detail.group = key
  end
  return detail
end,
judge_other = function(request, found, intake, special, j)
  local detail = made.judging.details_of(request, j)
  local entry, outcome, ahead = detail.entry, nil, false
  local ticks = entry and not entry.run
  local full = intake.fresh >= found.room and not ticks -- a tick is never refused
  if ticks then
    outcome, ahead = special.cron.judge(entry, detail.us)
  elseif entry and full and not found.present[j] then
    outcome = 'n'
  end
  if not outcome and entry and entry.overlap then
    local id = request.ids[j]
    outcome = special.cron.judge_overlap(made.judging.ended_states(special), intake.seen, entry, id, detail.group, not found.present[j] and not intake.seen[id])
  end
  if not outcome then
    outcome = made.judging.admit(request, found, intake, special, j, detail, full)
    if ahead and outcome == '1' then
      outcome = 'r'
    end
  end
  intake.outcomes[j] = outcome
end,
}
end
if chapter == 'arrivals' then
functions = {
put_special = function(found, intake, special, woken)
  local lines = special.lines
  if lines and #lines.members > 0 then
    woken = (made.call_groups or seldom('call_groups')).put_lines(lines) and found.withheld == '' or woken
  end
  if special.due then
    redis.call('ZADD', KEYS[3], unpack(special.due))
    local head, before = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES'), special.earliest[2]
    woken = woken or not before or tonumber(head[2]) < tonumber(before)
  end
  if special.expires then
    redis.call('ZADD', KEYS[20], unpack(special.expires))
    woken = woken or intake.seen[redis.call('ZRANGE', KEYS[20], 0, 0)[1]] ~= nil -- somebody must know the time
  end
  for _, old in ipairs(special.replaced or {}) do
    local id, state, bytes = unpack(old)
    seldom('retention').forget(state, id, bytes)
    redis.call('HDEL', KEYS[12], id)
  end
  if special.uniques then
    seldom('call_uniques').put_keys(special.uniques, intake.now)
  end
  return woken
end,
update_waiting = function(updates, now, largest)
  local function waiting_job(id)
    local record = redis.call('HGET', KEYS[2], id)
    local was = (made.record or seldom('record')).due_member(record, id)
    local at = tonumber(redis.call('ZSCORE', KEYS[3], was) or nil)
    return {record = record, was = was, at = at, member = at and was, expires = (made.record or seldom('record')).expiry_of(record)}
  end

  local function update_job(job, id, with)
    local old, detail = job.record, with.detail
    if not job.member or string.byte(old, 4) % 128 >= 64 then
      job.record = detail.version .. string.sub(old, 2, 22 + string.byte(old, 21) * 256 + string.byte(old, 22)) .. with.envelope
      return
    end
    if detail.scope == 's' then
      job.at = math.max(detail.us or now, now)
    end
    local enqueued = 0
    for i = 5, 12 do
      enqueued = enqueued * 256 + string.byte(old, i)
    end
    job.at = math.min(job.at, math.max(enqueued + detail.update, now))
    job.record = (made.record or seldom('record')).record_of(detail, with.class, string.sub(old, 5, 12), eight_bytes(job.at), with.envelope)
    job.member = (made.record or seldom('record')).due_member(job.record, id)
  end

  local function write_updates(jobs, ids)
    local records, left, added, expiries, first, size = {}, {}, {}, {}, {}, largest or largest_possible -- as in write_call; first: the members that are added
    for i, id in ipairs(ids) do
      local job = jobs[id]
      records[2 * i - 1], records[2 * i] = id, job.record
      size = math.max(size, #job.record)
      if job.member then
        if job.member ~= job.was then
          left[#left + 1] = job.was
        end
        seldom('record').appended(added, digits(job.at), job.member)
        first[job.member] = true
        local expires = (made.record or seldom('record')).expiry_of(job.record)
        if expires then
          seldom('record').appended(expiries, digits(expires), id)
        elseif job.expires then
          redis.call('ZREM', KEYS[20], id)
        end
      end
    end
    redis.call('HSET', KEYS[2], unpack(records))
    if #left > 0 then
      redis.call('ZREM', KEYS[3], unpack(left))
    end
    if size ~= largest then
      redis.call('HSET', KEYS[5], 'largest', digits(size))
    end
    if #added > 0 then
      redis.call('ZADD', KEYS[3], unpack(added))
      local woken = first[redis.call('ZRANGE', KEYS[3], 0, 0)[1]]
      if #expiries > 0 then
        redis.call('ZADD', KEYS[20], unpack(expiries))
        woken = woken or jobs[redis.call('ZRANGE', KEYS[20], 0, 0)[1]] -- somebody must know the time
      end
      if woken then
        seldom('wake').wake_one(KEYS[4])
      end
    end
  end

  local jobs, ids = {}, {}
  for _, with in ipairs(updates) do
    local id = with.id
    if not jobs[id] then
      jobs[id], ids[#ids + 1] = waiting_job(id), id
    end
    update_job(jobs[id], id, with)
  end
  write_updates(jobs, ids)
end,
}
end
made[chapter] = functions
return functions
end
local fixed = 1 -- the number of arguments before those of the jobs
local call = unpack(ARGV, 1, fixed)

local n = (#ARGV - fixed) / 4
local protocol, seq, skew = string.match(call or '', '^(%d+) (%d+) ?(.*)$')
if n < 1 or n > 1000 or n ~= math.floor(n) or not seq or #seq > 15 or #protocol > 3 or (skew ~= '' and not string.find(skew, '^-?%d+$')) then
  return seldom('lanes').invalid('the arguments are not those of an enqueue of 1 to 1000 jobs')
end
seq = tonumber(seq)

local last = redis.pcall('GET', LANE)
if type(last) == 'table' then
  return last -- an error of Redis; nothing was done
elseif last then
  local lseq, outcomes, others = string.match(last, '^(%d+) (%w*) ?(.*)$')
  lseq = tonumber(lseq)
  if lseq and seq < lseq then
    return {'stale'}
  elseif seq == lseq then
    return seldom('lanes').reply_again(outcomes, others)
  end
else
  -- A lane's first call checks that the user may run all commands. Otherwise a command could be denied between two writes. Servers other
  -- than Redis may not offer the check.
  local denied = seldom('requests').denied_enqueue()
  if denied then
    return denied
  end
end

local intake, found, special = judge_call(ARGV, n, protocol, true, tonumber(skew))
if not intake then
  return found -- an error
end
local outcomes = intake.outcomes
local outcome = table.concat(outcomes)
local anew = write_call(found, intake, special)
local met = special and special.uniques and special.uniques.met or nil
if string.find(outcome, 'n', 1, true) then
  met = met or {}
  met[#met + 1] = 'n' .. digits(found.maximum - found.room + intake.fresh) .. '/' .. digits(found.maximum)
end
if string.find(outcome, '[^e]') then -- if all are 'e', nothing was done: the call can be made again later
  redis.call('SET', LANE, digits(seq) .. ' ' .. outcome .. (met and ' ' .. table.concat(met, ' ') or ''), 'PX', '3600000')
end
local alike = n == 1 or outcome == string.rep(outcomes[1], n)
return {'ok', intake.now, alike and {outcomes[1]} or outcomes, anew and (met or {}) or met, anew and 'new' or nil}
