-- Whether a member of DUE is of a job that comes into its group's line when it is due: see later_class.
local function is_later(member)
  return string.find(member, '^[abc]') ~= nil
end
