-- Returns the first command that the user may not run, or nil. Each of the commands is a list: its name and its arguments. The server
-- must have redis.acl_check_cmd.
local function denied_command(commands)
  for _, command in ipairs(commands) do
    if not redis.acl_check_cmd(unpack(command)) then
      return command[1] .. ' on ' .. (command[2] or 'the server')
    end
  end
end
