-- include: later_class, has_header

-- A step of claim.lua: a job that is put off leaves its group, and comes into its line again when it is due. It stays if the group is serial, unless its
-- record says that it yields. A suspect stays.
if class ~= 's' and (string.sub(group, 1, 1) ~= 's' or has_header(record) and string.byte(record, 4) % 32 >= 16) then
  class = later_class(class)
  left[#left + 1] = group
end
