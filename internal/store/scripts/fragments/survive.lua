-- include: has_header, with_past

-- A step of claim.lua: counts a delivery that ended by itself, of a job that has crashed. With the fifth one in a row the job's crashes are over: it
-- waits among the jobs of its priority again.
class = string.sub(class, 1, 1)
if record and has_header(record) and string.byte(record, 3) > 0 then
  local survived, ms = past_of(record)
  if survived < 4 then
    record = with_past(record, survived + 1, ms)
  else
    record = with_past(string.sub(record, 1, 2) .. '\0' .. string.sub(record, 4))
    class = string.sub(record, 2, 2)
  end
end
