-- Returns the digest of a cron entry's description, or nil, and whether a scheduler has said within patience (us) that it has the
-- entry. seen is the entry's field 'seen:'.
local function holder(seen, now, patience)
  local us, digest = string.match(seen or '', '^(%d+) (%x+)$')
  return digest, us and math.abs(now - tonumber(us)) <= patience
end
