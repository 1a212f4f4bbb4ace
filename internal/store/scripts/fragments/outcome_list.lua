-- Returns the outcomes of a call, which are a string with a character for each job, as a list: of one element if all are the same.
local function outcome_list(outcomes)
  local first = string.sub(outcomes, 1, 1)
  if outcomes == string.rep(first, #outcomes) then
    return {first}
  end
  local list = {}
  for j = 1, #outcomes do
    list[j] = string.sub(outcomes, j, j)
  end
  return list
end
