-- Returns the digest of a cron entry's description, or nil, whether a scheduler has said within patience (us) that it has the entry, and
-- the plan of the description or ''. seen is the entry's field 'seen:'.
local function holder(seen, now, patience)
  local us, digest, plan = string.match(seen or '', '^(%d+) (%x+) ?(%x*)$')
  return digest, us and math.abs(now - tonumber(us)) <= patience, plan
end
