-- Returns the member of LINED for a job of a group: class and key, which name its line, then its place there, then its id. The place is the time
-- that the job is due (us), in 16 digits. So members sort by the order of the line.
local wide = string.format('%016d', 4294967296) == '0000004294967296' and '%s%s\1%016d%s' or '%s%s\1%016.0f%s'
local function line_at(class, key, us, id)
  return string.format(wide, class, key, us, id)
end
