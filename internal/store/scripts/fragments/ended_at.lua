-- include: own_age

-- Returns when a job ended (us). score is that of the job in the set of a terminal state. See retain.
local function ended_at(score, record)
  if score >= 0 then
    return score
  end
  return score + 4503599627370496 - (own_age(record) or 0)
end
