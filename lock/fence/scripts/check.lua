-- Refuses a holder that was superseded. Otherwise raises the mark and runs the effect, which Go
-- puts in the place of the line EFFECT. The effect sees only its own KEYS and ARGV.
--
-- KEYS[1]  the mark: "<token> <issuer> <holder>". It has no expiry
-- KEYS[..] the effect's own keys
-- ARGV[1]  the token, in decimal: tokens above 2^53 aren't exact as numbers of Lua
-- ARGV[2]  its issuer
-- ARGV[3]  a hash of its holder
-- ARGV[..] the effect's own arguments
--
-- Reply    {1, what the effect returns}; {0, token, issuer, holder} of the mark if the token is refused
-- Errors   WRONGTYPE   somebody put another type in the mark's place
--          BADMARK     the mark is none of ours
--          and those of the effect
local function larger(a, b) -- of two decimals without leading zeros
  if #a ~= #b then return #a > #b end
  return a > b
end

local mark = redis.pcall('GET', KEYS[1])
if type(mark) == 'table' then return mark end
if mark then
  local token, issuer, holder = string.match(mark, '^([1-9]%d*) (%S+) (%S+)$')
  if not token then return redis.error_reply('BADMARK it is no "<token> <issuer> <holder>"') end
  if issuer ~= ARGV[2] or larger(token, ARGV[1]) or token == ARGV[1] and holder ~= ARGV[3] then
    return {0, token, issuer, holder}
  end
end
local value = ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[3]
if mark ~= value then
  local set = redis.pcall('SET', KEYS[1], value)
  if set.err then return set end
end

local function effect(KEYS, ARGV)
EFFECT
end

local keys, args = {}, {}
for i = 2, #KEYS do keys[i - 1] = KEYS[i] end
for i = 4, #ARGV do args[i - 3] = ARGV[i] end
local result = effect(keys, args)
if type(result) == 'table' and result.err then return result end
return {1, result}
