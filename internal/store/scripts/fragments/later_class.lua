-- Returns the byte that stands for a class in DUE for a job that comes into its group's line when it is due: 'a', 'b' or 'c'.
local function later_class(class)
  return string.char(string.byte(class) + 49)
end
