-- include: redue, has_header, unique_of, with_past

-- Returns the record of a job that is to run at a time (us). If it had ended, it is as if it had not run: with no crashes and no
-- failed attempts, and as if it had not started. The last error stays.
local function rerun(record, us, ended)
  if ended and has_header(record) then
    record = with_past(string.sub(record, 1, 2) .. '\0' .. string.sub(record, 4) .. '\32\0') -- the field failed
    local scope, _, _, at = unique_of(record)
    if scope == 'S' then
      record = string.sub(record, 1, at - 1) .. 's' .. string.sub(record, at + 1)
    end
  end
  return redue(record, us)
end
