-- Whether the session holds the delivery j, of those that the call settles, with a token. In the hash, flags stand behind
-- a token and a space: of a suspect an 's' and the number of its crashes, then a 'c' if its job was cancelled meanwhile.
local function owns(j, token)
  return held[j] == token or held[j] and string.match(held[j], '^(%d+) ') == token
end
