-- Gives a lock up if it is still the holder's: to the next of the caller's own process, if
-- it names one and it is not others' turn; else to the first who waits elsewhere; else it is deleted.
-- Nobody is passed by: after 16 grants or 20 ms in a row in which the key never was
-- free, it is, so that clients of other libraries, which look now and then, get in. Then
-- it is only reserved among ours, for the first who waits.
--
-- A client may repeat it when the reply was lost, and then finds the lock gone, or with the
-- one that it was given to. That the record still names one of the two shows that
-- nobody else has had it since, and that the server has kept its memory.
--
-- KEYS     1 the lock, 2 its record, 3 its waiting line
-- ARGV[1]  the holder's random value
-- ARGV[2]  the next holder's random value
-- ARGV[3]  the name of the next holder, if it is of the caller's own process; else empty
-- ARGV[4]  the next lock's TTL, ms, if it is granted here
-- ARGV[5]  the next lock's TTL, ms, if it is offered to another process
-- ARGV[6]  how many grants in a row there were before this one
-- ARGV[7]  when the first of them was, µs; 0: unknown
-- ARGV[8]  for how long the lock must be held on, ms
-- ARGV[9]  1 if whoever subscribes may do so at another node, as in a Cluster
--
-- Reply    {2, token}   released, and granted to the next of the process
--          {1, pause}   released; who wants it next should let others be first for so long, ms
--          {0}          the lock is gone
--          {-1}         the lock is another's
-- Errors   WRONGTYPE   somebody put another type in one of the places
-- Message  "<value> <grants in a row> <first of them> <pause> <at> <token> <ms> <key>": whoever
--          gets it may acquire the lock with this value, after the pause. If it has a token, the
--          lock is its own already, for so many ms from a moment after it was put in line at <at>
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then return held end
local value, offered = ARGV[1], ARGV[2]
local last, by, owner = read_record(KEYS[2])
if type(last) == 'table' then
  -- No token can be granted from here, but a holder may always give its lock up.
  if held == value then redis.call('DEL', KEYS[1]) return {1, 0} end
  return last
end
-- Who has a reservation and doesn't use it passes it on, as a holder does.
if held ~= value and not (not held and by == value and owner == '*') then
  if by == offered and held == offered and ARGV[3] ~= '' and owner ~= '*' then return {2, decimal(last)} end
  if held == offered or by == offered or (not held and by == value) then return {1, 0} end
  return {held and -1 or 0}
end

if tonumber(ARGV[8]) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[8])
  return {1, 0}
end

local now = clock()
local row, since = tonumber(ARGV[6]) + 1, tonumber(ARGV[7])
local over = row >= 16 or since > 0 and now - since >= 20000

if ARGV[3] ~= '' and not over then
  -- PEXPIRE is permitted when Redis is out of memory, and with it what follows.
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  local token = decimal(math.max(last + 1, now))
  redis.call('SET', KEYS[1], offered, 'PX', ARGV[4])
  redis.call('SET', KEYS[2], token .. ' ' .. offered .. ' ' .. ARGV[3], 'PX', RECORD_TTL)
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
for _ = 1, 8 do -- who died is passed by, a few at a time
  local first = redis.pcall('ZPOPMIN', KEYS[3])
  if first.err or not first[1] then break end
  local channel, name = string.match(first[1], '^(%S+) (.+)$')
  local heard = channel and redis.pcall('PUBLISH', channel,
    string.format('%s %d %.0f %d %s %.0f %s %s', offered, row, since, pause, first[2], token, ARGV[5], KEYS[1]))
  if type(heard) == 'number' and (heard > 0 or ARGV[9] == '1') then
    told = name
    break
  end
end
if not told then
  redis.call('DEL', KEYS[1])
elseif over then
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[2], decimal(math.max(last + 1, now)) .. ' ' .. offered .. ' *', 'PX', RECORD_TTL)
else
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  redis.call('SET', KEYS[1], offered, 'PX', ARGV[5])
  redis.call('SET', KEYS[2], decimal(token) .. ' ' .. offered .. ' ' .. told, 'PX', RECORD_TTL)
end
return {1, pause}
