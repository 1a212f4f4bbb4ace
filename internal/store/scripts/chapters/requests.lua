-- What a call asks for that puts jobs in which aren't bare, and what it needs of the queue: its arguments, read and checked. See read_request.

-- Returns the details of a job of the call, of which the caller fills in what the job has:
--   cautious: whether it must never replace another job
--   version: that of its record
--   update: false, or how late after its enqueue (us) a job is due at most that has the unique key, waits for its start, and is to get what this one has
--   extras: '+', the flags and the extras; false if it has none
--   group: the key of its group; false if it has none
--   scope, key: of its unique key, as unique_part returns them; false if it has none
--   window: of that key, nil if it has none
--   us: when it is due; false if that is now
--   entry: what read_entry notes; nil if it is of no cron entry
local function new_details(cautious, version, update)
  return { -- with the fields that many have, so that Lua makes room for these once: it makes it for 8, or for 16
    cautious = cautious, version = version, update = update, extras = false, group = false, scope = false, key = false, us = false,
  }
end

-- Reads jobs that are due at once, and have a unique key or a group and nothing else, from job j on. Most that aren't bare are such. Returns the number of
-- the first of the n jobs that isn't, or isn't valid: read_details finds that out.
local function read_short(request, n, j)
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
end

-- Reads the extras of a job into its details. Returns whether they are valid.
local function read_extras(request, detail, extras)
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
    local scope, key, window = unique_part(flags, extras, 3, #extras)
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
end

-- Notes that a job is of a cron entry:
--   name: that of the entry
--   plan: the plan of the tick; false if it has none
--   late: how late (us) the tick may be if it is made up for
--   overlap: the policy for jobs that overlap; false if there is none
--   run: whether a tool enqueues the job now, outside of the entry's ticks
-- Returns whether that is valid.
local function read_entry(request, detail, name, plan, late, overlap, run)
  if not name or #name > 200 or overlap == 'q' and string.sub(detail.group or '', 1, 1) ~= 's' then
    return false
  end
  detail.entry = {name = name, plan = plan ~= '' and plan, late = tonumber(late), overlap = overlap ~= '' and overlap, run = run}
  request.entries, request.overlaps = request.entries or {}, request.overlaps or overlap ~= ''
  request.entries[#request.entries + 1] = name
  return true
end

-- Reads the time of a job into its details. Returns whether it is valid.
local function read_time(request, detail, when, now)
  request.timed = true
  local sign, us, rest = string.match(when, '^([+@=])(%d+)(.*)$')
  if not sign then
    local name, overlap = string.match(when, '^&([!-z|~]+) ([sqc])$')
    detail.us = 0
    return read_entry(request, detail, name, '', '', overlap, true)
  end
  detail.us = tonumber(us)
  if sign == '=' then
    local name, plan, late, overlap = string.match(rest, '^ ([!-z|~]+) ?(%x*) ?(%d*) ?([sqc]?)$')
    return name and (plan == '') == (late == '') and (overlap == '' or plan ~= '') and not detail.key
      and read_entry(request, detail, name, plan, late, overlap, false)
  end
  detail.us = math.min(sign == '+' and now + detail.us or detail.us, 9007199254740991) -- in the year 2255; a double holds no more
  return rest == ''
end

-- Reads the class and the time of a job that isn't bare. Returns its class, and its details; or nil if they aren't valid.
local function read_details(request, text, when, now)
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
  local detail = new_details(mark == '!', other == '~' and '\2' or '\1', star == '*' and (tonumber(most) or math.huge))
  if extras ~= '' and not read_extras(request, detail, extras) or when ~= '' and not read_time(request, detail, when, now) then
    return nil
  end
  return class, detail
end

-- Reads jobs that aren't bare, from job j on: at least that one. Returns the number of the job behind them, or nil if one isn't valid.
local function read_others(request, n, now, j)
  local after = read_short(request, n, j)
  if after == j then
    local id, class, detail = request.args[4 * j - 2], read_details(request, request.args[4 * j - 1], request.args[4 * j], now)
    if not class or id == '' or #id > 200 then
      return nil
    end
    request.ids[j], request.classes[j], request.details[j], after = id, class, detail, j + 1
  end
  return after
end

-- Begins what only some calls have:
--   lines, uniques, cron: what lines_of_call, uniques_of_call and entries_of_call return; false if the call needs none
--   earliest: the member of DUE that is due first, and its score
--   due, expires: scores and members for DUE and EXPIRES; false if there are none
--   replaced: jobs that have ended and are replaced, each with its state and the size of its record; nil if there are none
--   stamps: by the time, the first seven of the eight bytes of the times that differ in the last one alone
--   ended: what terminal_states returns; nil until it is needed
local function new_special()
  return {lines = false, uniques = false, cron = false, earliest = false, due = false, expires = false, stamps = {}}
end

-- Reads what a call needs that has other than bare jobs. reckoned is the time by which ticks go; reckons says that it is the caller's own. Returns what
-- new_special says, or nil and an error.
local function read_special(request, reckoned, reckons)
  local special, fault = new_special(), nil
  special.lines = request.groups and lines_of_call()
  special.uniques = request.uniques and uniques_of_call(request.uniques)
  special.earliest = request.timed and redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
  if request.entries then
    special.cron, fault = entries_of_call(request.entries, request.overlaps, reckoned, reckons)
    if fault then
      return nil, fault
    end
  end
  return special
end

-- Returns an error if the user may not run all commands of a call that puts jobs in, nil if it may or if the server can't say. So no command is denied between
-- two writes.
local function denied_enqueue()
  local denied = redis.acl_check_cmd and denied_command({
    {'RPUSH', HIGH, ''}, {'RPUSH', NORMAL, ''}, {'RPUSH', LOW, ''}, {'ZADD', DUE, '0', ''},
    {'HSET', JOBS, '', ''}, {'HSET', STATS, '', ''}, {'HSET', CRON, '', ''}, {'HINCRBY', STATS, '', '1'},
    {'LPUSH', HIGH, ''}, {'ZREM', IDLE, ''}, {'ZRANGE', IDLE, '0', '0'}, {'PUBLISH', IDLE, ''}, {'SPUBLISH', IDLE, ''},
    {'SET', LANE, ''}, {'ZREM', DEAD, ''}, {'ZREM', CANCELLED, ''}, {'ZREM', COMPLETED, ''}, {'HDEL', NOTES, ''},
    {'HMGET', JOBS, ''}, {'HMGET', CRON, ''}, {'HGET', STATS, ''}, {'HEXISTS', JOBS, ''}, {'HSTRLEN', JOBS, ''},
    {'HLEN', JOBS}, {'HLEN', NOTES}, {'ZCARD', DEAD}, {'LLEN', HIGH}, {'LLEN', NORMAL}, {'LLEN', LOW},
    {'HMGET', SETTINGS, ''}, {'EXISTS', SETTINGS}, {'TIME'}, {'ZRANGE', DUE, '0', '0'},
    {'ZSCORE', DUE, ''}, {'ZSCORE', DEAD, ''}, {'ZSCORE', CANCELLED, ''}, {'ZSCORE', COMPLETED, ''}, {'ZMSCORE', DUE, ''},
  })
  return denied and redis.error_reply('NOPERM signalbox: the Redis user may not run ' .. denied .. ', which an enqueue needs')
end
