-- Returns the outcomes of a call in the form of the reply. In the lane they are a string with a character for each job.
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
