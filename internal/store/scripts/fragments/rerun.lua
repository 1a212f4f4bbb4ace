-- include: redue, has_header

-- Returns the record of a job that is to run at a time (us). If it had ended, it is as if it had not run: with no crashes and no
-- failed attempts. The last error stays.
local function rerun(record, us, ended)
  if ended and has_header(record) then
    record = string.sub(record, 1, 2) .. '\0' .. string.sub(record, 4) .. '\32\0' -- the field failed
  end
  return redue(record, us)
end
