-- Returns the first of some commands, each a list with its arguments, that the user who calls the script
-- may not run, or nil. The server has redis.acl_check_cmd.
local function denied_command(commands)
  for _, command in ipairs(commands) do
    if not redis.acl_check_cmd(unpack(command)) then
      return command[1] .. ' on ' .. (command[2] or 'the server')
    end
  end
end
