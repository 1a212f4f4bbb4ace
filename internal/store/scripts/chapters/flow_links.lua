-- Flows, such as batches: what is counted of them, and the links by which jobs are their members or wait for them. docs/flows.md has the rules.
--
-- A link is a role and the reference of a flow: its name, '{', and a mark. A later flow of this name has another mark. There are spaces between links. The roles:
--   r: a member that hasn't ended; R: one that has, in a record that is kept
--   s, e, f: waits for the success of the flow, for its end, or for the first member that doesn't complete; S, E, F: may run, or has run
--   z: counts no more

-- Returns the links of a job with this record, and where they begin in it; or nil if it has none.
local function links_of(record)
  local flags, first, last = extras_in(record)
  if flags % 128 < 64 then
    return nil
  end
  first = part_at(64, flags, record, first)
  local high, low = byte_at(record, first, first + 1)
  local size = low and high * 256 + low or 0
  if size == 0 or first + 1 + size > last then
    return nil
  end
  return string.sub(record, first + 2, first + 1 + size), first + 2
end

-- Returns the record with other links of the same length. at is where they begin.
local function relinked(record, at, links)
  return string.sub(record, 1, at - 1) .. links .. string.sub(record, at + #links)
end

-- Returns the links with another role in the link of this role to the flow with this reference.
local function with_role(links, role, ref, to)
  local at = string.find(' ' .. links .. ' ', ' ' .. role .. ref .. ' ', 1, true)
  return at and string.sub(links, 1, at - 1) .. to .. string.sub(links, at + 1) or links
end

-- Returns the role of the link by which a job waits for a flow, or has waited, and the reference of the flow; or nil.
local function waits_by(links)
  return string.match(' ' .. links, ' ([sefSEF])(%S+)')
end

-- Returns the member of AWAITING of a job that waits for a flow by a link of this role; or, for the role 'c', of one that was cancelled since the flow failed, and may
-- wait again. The role comes first, so those that wait, and all of one flow and role, are ranges.
local function waiter_of(role, name, id)
  return role .. name .. '{' .. id
end

-- Returns the member of AWAITING of a job with this record, if it is there: it waits for a flow. Else returns nil.
local function awaits(id, record)
  local links = links_of(record)
  local role, name = string.match(' ' .. (links or ''), ' ([sef])([^ {]+){')
  local member = role and waiter_of(role, name, id)
  return member and redis.call('ZSCORE', AWAITING, member) and member or nil
end

-- Notes that a job with these links has ended so: 'completed', 'dead', 'cancelled', or 'deleted'. The flows count it when the call has done all else: see count_ends.
local function note_end(ends, links, outcome, id)
  local list = ends.linked or {}
  local n = #list
  list[n + 1], list[n + 2], list[n + 3], ends.linked = links, outcome, id, list
  ends.noted_ends = ends.noted_ends or {}
  ends.noted_ends[id] = true
end

-- Notes that a job has ended whose record is kept. Returns the record, in which the job is a member no more.
local function note_kept_end(ends, outcome, id, record)
  local links, at = links_of(record)
  if not links then
    return record
  end
  note_end(ends, links, outcome, id)
  return relinked(record, at, string.sub(string.gsub(' ' .. links, ' r', ' R'), 2))
end

-- Notes that a delivery's job has ended, which has these links, unless that was noted with its record.
local function note_delivery_end(ends, links, outcome, id)
  if links ~= '' and not (ends.noted_ends and ends.noted_ends[id]) then
    note_end(ends, links, outcome, id)
  end
end
