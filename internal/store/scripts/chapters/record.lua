-- A job's record: its header, its extras, and what follows from them. docs/wire.md has the bytes.

-- Adds values to a list, which is made if there is none. Returns the list.
local function appended(list, a, b)
  list = list or {}
  local n = #list
  list[n + 1], list[n + 2] = a, b
  return list
end

-- When a job is due that is held, since it is being moved (us). No other job is due then: read_time allows one less.
local due_when_held = 9007199254740992

-- From how many crashes on a job is a suspect. SuspectAt has the same number.
local suspect_at = 2

-- From how many crashes on a suspect runs beside no other one. AloneAt has the same number.
local alone_at = 4

-- How many deliveries in a row that end by themselves end a job's crashes. SurvivedAt has the same number.
local survived_at = 5

-- The size of the largest record that a job can have (bytes). Other programs may have put in any.
local largest_possible = 1049598

-- Reports whether a record begins with a header, of any version. A record without one is kept as it is.
local function has_header(record)
  return #record >= 20 and string.find(record, '^[\1-\31][012]') ~= nil
end

-- Returns the time (us) at which a job with this record was last due. The record has a header.
local function due_of(record)
  local a, b, c, d, e, f, g, h = string.byte(record, 13, 20)
  return ((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g) * 256 + h
end

-- Returns the class under which a job with this record waits: '0', '1', '2', or 's' of a suspect.
local function class_of(record)
  if not has_header(record) then
    return '1'
  end
  return string.byte(record, 3) >= suspect_at and 's' or string.sub(record, 2, 2)
end

-- A local is found faster than a field.
local byte_at = string.byte

-- Returns the flags of a record, and the first and the last of its bytes that are extras. The flags are 0 if it has no header or no extras, or ends in them.
local function extras_in(record)
  if not has_header(record) then
    return 0
  end
  local flags, high, low = byte_at(record, 4), byte_at(record, 21, 22)
  local last = low and 22 + high * 256 + low
  if flags == 0 or not last or last > #record then
    return 0
  end
  return flags, 23, last
end

-- Returns where among extras with these flags, which begin at a byte of text, the part of flag 2, 4, 8, 32 or 64 begins, or would begin: behind those of the
-- flags that are less. The part isn't there if it begins behind the last byte of the extras.
local function part_at(flag, flags, text, at)
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
end

-- Returns the number that 8 bytes of a text say, big endian, or most if it is greater.
local function number_at(text, at, most)
  local a, b, c, d, e, f, g, h = byte_at(text, at, at + 7)
  return math.min(((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g) * 256 + h, most)
end

-- The longest time (us) that a record can say: 10,000 days.
local longest_time = 864000000000000

-- Returns the key of the group that a job with this record is of, or nil. It begins with 's' for a serial key, and with 'g' for another. A claim
-- asks for each job of a group: so it looks at the extras by itself, which takes half as long as with extras_in.
local function group_of(record)
  if not has_header(record) or byte_at(record, 4) % 2 == 0 then
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
end

-- Returns the byte that stands for a class in DUE for a job that comes into its group's line when it is due: 'a', 'b' or 'c'.
local function later_class(class)
  return string.char(string.byte(class) + 49)
end

-- Returns the member of DUE for a job with this record that doesn't hold its group, if it has one.
local function due_member(record, id)
  return (group_of(record) and later_class(string.sub(record, 2, 2)) or class_of(record)) .. id
end

-- Reports whether a member of DUE is of a job that comes into its group's line when it is due: see later_class.
local function is_later(member)
  return string.find(member, '^[abc]') ~= nil
end

-- The format of a member of LINED. '%d' has 32 bits on some platforms.
local wide = string.format('%016d', 4294967296) == '0000004294967296' and '%s%s\1%016d%s' or '%s%s\1%016.0f%s'

-- Returns the member of LINED for a job of a group: class and key, which name its line, then its place there, then its id. The place is the time
-- that the job is due (us), in 16 digits. So members sort by the order of the line.
local function line_at(class, key, us, id)
  return string.format(wide, class, key, us, id)
end

-- Returns the member of LINED for a job of a group that has this record.
local function line_of(record, key, id)
  return line_at(string.sub(record, 2, 2), key, due_of(record), id)
end

-- Returns the scope of the unique key of a job with these flags, whose extras are the bytes from..to of text ('s', 'e', 'w' or 't'; 'S' of a job
-- that had it until it started), the key, of 'w' and 't' the length of the window (us), and where the scope is. Returns nil if the job has none.
local function unique_part(flags, text, from, to)
  if flags % 8 < 4 then
    return nil
  end
  local first = part_at(4, flags, text, from)
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
    us, first = number_at(text, first, longest_time), first + 8
  elseif scope ~= 115 and scope ~= 101 and scope ~= 83 then -- 's', 'e', 'S'
    return nil
  end
  if first > last then
    return nil
  end
  return string.char(scope), string.sub(text, first, last), us, at
end

-- Returns the scope of the unique key of a job with this record, the key, the length of its window, and where the scope is, as
-- unique_part does; or nil.
local function unique_of(record)
  local flags, first, last = extras_in(record)
  if flags % 8 < 4 then
    return nil
  end
  return unique_part(flags, record, first, last)
end

-- Returns how long (us) a job is kept after it has ended, as its record says: 0 if it isn't kept at all, nil if the record doesn't say it.
local function own_age(record)
  local flags, first, last = extras_in(record)
  if flags % 4 < 2 then
    return nil
  end
  first = part_at(2, flags, record, first)
  return first + 7 <= last and number_at(record, first, longest_time) or nil
end

-- Returns when a job with this record expires (us) if it hasn't started by then, or nil if it never does. Then, if the record has that part, where
-- it begins. A job that has started has 0 there, or 129 and its deadline. One that is held, since it is being moved, doesn't expire meanwhile.
local function expiry_of(record)
  local flags, first, last = extras_in(record)
  first = flags % 16 >= 8 and part_at(8, flags, record, first)
  if not first or first + 7 > last then
    return nil
  end
  local us, due, kind = number_at(record, first, longest_time), due_of(record), byte_at(record, first)
  if us == 0 or kind == 129 or due >= due_when_held then
    return nil, first
  elseif kind == 128 then -- a deadline: the other seven bytes
    return math.max(number_at('\0' .. string.sub(record, first + 1, first + 7), 1, 9007199254740991), 1), first
  end
  return math.min(due + us, 9007199254740991), first -- a double holds no more
end

-- Returns the record with another due time.
local function redue(record, us)
  if not has_header(record) then
    return record
  end
  return string.sub(record, 1, 12) .. eight_bytes(us) .. string.sub(record, 21)
end

-- Returns the flags of a record that has a header, its extras, and where its envelope begins. Returns nil if it ends in its extras.
local function extras_of(record)
  local flags = string.byte(record, 4)
  if flags == 0 then
    return flags, '', 21
  end
  local stop = #record > 21 and 22 + string.byte(record, 21) * 256 + string.byte(record, 22) or math.huge
  if stop > #record then
    return nil
  end
  return flags, string.sub(record, 23, stop), stop + 1
end

-- Returns what a record with a header says of its job's crashes in the part of flag 32: how many deliveries in a row have ended by themselves since
-- the last crash, and how long the job had run at the last one that counted (ms), 0 if that isn't known or if a later one didn't count.
local function past_of(record)
  local flags, extras = extras_of(record)
  if not flags or flags % 64 < 32 then
    return 0, 0
  end
  local at = part_at(32, flags, extras, 1)
  local ended_well, a, b, c, d = string.byte(extras, at, at + 4)
  if not d then
    return 0, 0
  end
  return ended_well, ((a * 256 + b) * 256 + c) * 256 + d
end

-- Returns a record with a header with another part of flag 32, as past_of returns it. Without times it has none from then on.
local function with_past(record, times, ms)
  local flags, extras, envelope = extras_of(record)
  if not flags then
    return record
  end
  local at, part, has = part_at(32, flags, extras, 1), '', flags % 64 >= 32
  if times then
    part = string.char(times, math.floor(ms / 16777216), math.floor(ms / 65536) % 256, math.floor(ms / 256) % 256, ms % 256)
  end
  extras = string.sub(extras, 1, at - 1) .. part .. string.sub(extras, has and at + 5 or at)
  flags = flags - (has and 32 or 0) + (times and 32 or 0)
  if flags > 0 then
    extras = string.char(math.floor(#extras / 256), #extras % 256) .. extras
  end
  return string.sub(record, 1, 3) .. string.char(flags) .. string.sub(record, 5, 20) .. extras .. string.sub(record, envelope)
end

-- Returns the record of a job that is to run at a time (us). If it had ended, it is as if it had not run: with no crashes and no
-- failed attempts, and as if it had not started. The last error stays.
local function rerun(record, us, ended)
  if ended and has_header(record) then
    record = with_past(string.sub(record, 1, 2) .. '\0' .. string.sub(record, 4) .. '\32\0') -- the field failed
    local scope, _, _, at = unique_of(record)
    if scope == 'S' then
      record = string.sub(record, 1, at - 1) .. 's' .. string.sub(record, at + 1)
    end
  end
  return redue(record, us)
end

-- Adds a crash to a record. The job had run for at least least (us), and for at most most; apart is for how long (us) a suspect keeps others out of a session.
-- Returns the record and its number of crashes. If it has no header, returns it unchanged, and false.
--
-- A bomb mostly lives as long each time. So the crash of a suspect doesn't count if the suspect had run for another time than at its last crash: another
-- job has caused it, most likely. The next one counts in any case. So a bomb that lives for another time each time dies a few crashes later.
local function crash(record, least, most, apart)
  if not has_header(record) then
    return record, false
  end
  local crashes = string.byte(record, 3)
  local _, ms = past_of(record)
  local past = 1000 * ms -- it had run for at most so long, and for at least apart less
  if crashes >= suspect_at and ms > 0 and (least >= past or most < past - apart) then
    return with_past(record, 0, 0), crashes
  end
  crashes = math.min(crashes + 1, 255)
  -- A record has four bytes for the time in ms: 49 days. Of a job that runs for longer than that each time, every other crash counts.
  ms = math.min(math.floor(math.max(most, apart) / 1000), 4294967295)
  return with_past(string.sub(record, 1, 2) .. string.char(crashes) .. string.sub(record, 4), 0, ms), crashes
end

-- Returns the record of a new job with these details, which is due at these eight bytes, and its size without its header.
local function record_of(detail, class, at, due_at, envelope)
  local extras = detail.extras
  if not extras then
    return detail.version .. class .. '\0\0' .. at .. due_at .. envelope, #envelope
  end
  -- In the arguments, the extras follow '+' and the flags. In the record, their length and the extras stand before the envelope.
  local part = #extras - 2
  return detail.version .. class .. '\0' .. string.sub(extras, 2, 2) .. at .. due_at
    .. string.char(math.floor(part / 256), part % 256) .. string.sub(extras, 3) .. envelope, #envelope + #extras
end
