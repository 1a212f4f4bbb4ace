-- The keys of a queue.

-- Reads each key of the script. So one of the wrong type ends the call before it has written anything.
local function check_keys()
  -- has a line for each key, see passage.in
end
