-- Reports which commands the user may not call, and which keys it may not use. It touches no key.
--
-- ARGV: keys_asked: how many keys, at least one; then the keys; key: the first of them, with which the commands are tried; then names of
--       commands
-- Reply: {'ok', commands that are denied on the first key, keys that are denied}
--        {'unknown'} if the server can't report it
-- Errors: those of Redis.

local fixed = 1 -- arguments before the keys
local keys_asked = unpack(ARGV, 1, fixed)
if not redis.acl_check_cmd then
  return {'unknown'}
end
local commands, keys = {}, {}
local key = ARGV[fixed + 1]
for i = fixed + 1 + keys_asked, #ARGV do
  -- A command that the server doesn't have raises an error. The user doesn't lack it. Redis looks for keys in the arguments, so there
  -- must be enough arguments for each of the commands.
  local known, may = pcall(redis.acl_check_cmd, ARGV[i], key, key, key, key, key, key)
  if known and not may then
    commands[#commands + 1] = ARGV[i]
  end
end
for i = fixed + 1, fixed + keys_asked do
  local known, may = pcall(redis.acl_check_cmd, 'HSET', ARGV[i], 'field', 'value')
  if known and not may then
    keys[#keys + 1] = ARGV[i]
  end
end
return {'ok', commands, keys}
