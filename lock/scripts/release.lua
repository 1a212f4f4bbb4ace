-- Gives a lock up if it is still the holder's. The lock goes to the next waiter of the caller's own process, if the
-- call names one. Else it goes to the first process in line. If nobody waits it is deleted.
-- After 16 grants or 20 ms in a row without the key being free, the key is freed, so that clients of
-- other libraries, which look now and then, get in. Among clients of this library it is then reserved for the
-- first in line.
--
-- The lock passes on with a new value, and each value has one way to its waiter. ARGV[2] is granted, and only the
-- reply carries it. ARGV[10] is offered, and only the message carries it. So a lost reply never
-- makes two holders of one grant.
--
-- A client repeats it with the same arguments when the reply was lost, and then finds the lock gone, or
-- with the one that it was given to. That the record still names one of the three values shows
-- that nobody else has had it since, and that the server has kept its memory.
--
-- KEYS     1 the lock, 2 its record, 3 its waiting line
-- ARGV[1]  the holder's random value
-- ARGV[2]  the next holder's random value, if the lock is granted here
-- ARGV[3]  the name of the next holder, if it is of the caller's own process; else empty
-- ARGV[4]  the next lock's TTL, ms, if it is granted here
-- ARGV[5]  the next lock's TTL, ms, if it is offered to another process
-- ARGV[6]  how many grants in a row there were before this one
-- ARGV[7]  when the first of them was, µs; 0: unknown
-- ARGV[8]  for how long the lock must be held on, ms
-- ARGV[9]  1 if whoever subscribes may do so at another node, as in a Cluster
-- ARGV[10] the next holder's random value, if the lock is offered to whoever hears the message
-- ARGV[11] the channel of the caller's own process; empty: it has none. If nobody waits there (ARGV[3]
--          is empty), it is passed by.
-- ARGV[12] the token of the holder's grant; 0: unknown. Copies of old calls that come late may grant a value once
--          more, with another token. A release of the first grant is none of the second.
--
-- Reply    {2, token}   released, and granted to the next of the process
--          {1, pause}   released; who wants it next should let others be first for so long, ms
--          {0}          the lock is gone
--          {-1}         the lock is another's, or has been since
-- Errors   WRONGTYPE   somebody put another type in one of the places
-- Message  "<value> <grants in a row> <first of them> <pause> <at> <token> <ms> <key>": whoever
--          gets it may acquire the lock with this value, after the pause. If it has a token, the
--          lock is its own already, for so many ms from a moment after it was put in line at <at>

-- So many waiters that are gone are passed by in one call.
local MAX_DEAD = 1000
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
local value, granted, offered = ARGV[1], ARGV[2], ARGV[10]
local last, by, owner = read_record(KEYS[2])
if type(last) == 'table' then
  -- No token can be granted from here, but a holder may always give its lock up.
  if held == value then redis.call('DEL', KEYS[1]) return {1, 0} end
  return last
end
-- Who has a reservation and doesn't use it passes it on, as a holder does.
local regranted = by == value and ARGV[12] ~= '0' and last ~= ARGV[12] + 0
if regranted or held ~= value and not (not held and by == value and owner == '*') then
  if held == granted and by == granted then return {2, decimal(last)} end
  if held == offered or by == offered or (not held and by == value) then return {1, 0} end
  local passed = by ~= value and ARGV[12] ~= '0' and last > ARGV[12] + 0
  return {(held or passed) and -1 or 0}
end

if ARGV[8] ~= '0' then
  -- With another value, so that an extension that was sent before can't make it last longer.
  redis.call('PEXPIRE', KEYS[1], ARGV[8])
  redis.call('SET', KEYS[1], offered, 'PX', ARGV[8])
  if by == value then redis.call('SET', KEYS[2], decimal(last) .. ' ' .. offered .. ' ' .. owner, 'PX', RECORD_TTL) end
  return {1, 0}
end

local now, stamp = clock()
local row, since = ARGV[6] + 1, ARGV[7] + 0
local over = row >= 16 or since > 0 and now - since >= 20000

if ARGV[3] ~= '' and not over then
  local token = last >= now and decimal(last + 1) or stamp
  if not redis.pcall('SET', KEYS[1], granted, 'PX', ARGV[4]).ok then
    -- PEXPIRE is permitted when Redis is out of memory, and with it what follows.
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
    redis.call('SET', KEYS[1], granted, 'PX', ARGV[4])
  end
  redis.call('SET', KEYS[2], token .. ' ' .. granted .. ' ' .. ARGV[3], 'PX', RECORD_TTL)
  return {2, token}
end

local pause = 0
if over and since > 0 then
  -- A sixteenth of the time, so that a client that looks at random finds it free.
  pause = math.max(0, math.min(math.floor((now - since) / 16000), 10))
  row, since = 0, 0
end
local token = over and 0 or math.max(last + 1, now)
local told
for _ = 1, MAX_DEAD do -- who died is passed by
  local first = redis.pcall('ZPOPMIN', KEYS[3])
  if first.err or not first[1] then break end
  local channel, name = string.match(first[1], '^(%S+) (.+)$')
  if channel and (channel ~= ARGV[11] or ARGV[3] ~= '') then
    -- Joined, not formatted: %s ends at a NUL, which a key may have.
    local heard = redis.pcall('PUBLISH', channel, table.concat({
      offered, decimal(row), decimal(since), decimal(pause), first[2], decimal(token), ARGV[5], KEYS[1]}, ' '))
    if type(heard) == 'number' and (heard > 0 or ARGV[9] == '1') then
      told = name
      break
    end
  end
end
if not told then
  redis.call('DEL', KEYS[1])
  -- A reservation that nobody wants any more keeps nobody out.
  if not held then redis.call('SET', KEYS[2], decimal(last) .. ' ' .. value .. ' -', 'PX', RECORD_TTL) end
elseif over then
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[2], decimal(math.max(last + 1, now)) .. ' ' .. offered .. ' *', 'PX', RECORD_TTL)
else
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  redis.call('SET', KEYS[1], offered, 'PX', ARGV[5])
  redis.call('SET', KEYS[2], decimal(token) .. ' ' .. offered .. ' ' .. told, 'PX', RECORD_TTL)
end
return {1, pause}
