-- Whether what a session holds for a delivery says that its job was cancelled while it runs: with the flag 'c'. CANCELS has the mark
-- then.
local function is_marked(value)
  return value and string.find(value, '^%d+ %w*c') ~= nil
end
