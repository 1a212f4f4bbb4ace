-- include: has_header, with_past

-- Adds a crash to a record. The job had run for at least least (us), and for at most most; hold is for how long (us) a suspect keeps others out of a session.
-- Returns the record and its number of crashes. If it has no header, returns it unchanged, and false.
--
-- A bomb mostly lives as long each time. So the crash of a suspect doesn't count if the suspect had run for another time than at its last crash: another
-- job has caused it, most likely. The next one counts in any case. So a bomb that lives for another time each time dies a few crashes later.
local function crash(record, least, most, hold)
  if not has_header(record) then
    return record, false
  end
  local crashes = string.byte(record, 3)
  local _, ms = past_of(record)
  local past = 1000 * ms -- it had run for at most so long, and for at least hold less
  if crashes >= 2 and ms > 0 and (least >= past or most < past - hold) then
    return with_past(record, 0, 0), crashes
  end
  crashes = math.min(crashes + 1, 255)
  -- A record has four bytes for the time in ms: 49 days. Of a job that runs for longer than that each time, every other crash counts.
  ms = math.min(math.floor(math.max(most, hold) / 1000), 4294967295)
  return with_past(string.sub(record, 1, 2) .. string.char(crashes) .. string.sub(record, 4), 0, ms), crashes
end
