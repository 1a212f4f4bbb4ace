-- What a call replies that is made again, or that does nothing.

-- Returns the first command that the user may not run, or nil. Each of the commands is a list: its name and its arguments. The server
-- must have redis.acl_check_cmd.
local function denied_command(commands)
  for _, command in ipairs(commands) do
    if not redis.acl_check_cmd(unpack(command)) then
      return command[1] .. ' on ' .. (command[2] or 'the server')
    end
  end
end

-- Returns the reply of a call that was made before. In the lane, outcomes is a string with a character for each job, and met has spaces between its texts.
local function reply_again(outcomes, met)
  local first, list, texts = string.sub(outcomes, 1, 1), {}, {}
  if outcomes == string.rep(first, #outcomes) then
    list[1] = first
  else
    for j = 1, #outcomes do
      list[j] = string.sub(outcomes, j, j)
    end
  end
  for text in string.gmatch(met, '[^ ]+') do
    texts[#texts + 1] = text
  end
  return {'ok', clock(), list, texts, 'new'} -- it may have been
end

-- Returns the error of a call that says what is wrong with its arguments, or with what the queue has.
local function invalid(what)
  return redis.error_reply('ERR signalbox: ' .. what)
end

-- Returns the error for a call of a protocol that doesn't know the queue's layout. withheld has its number, see read_settings.
local function other_layout(withheld, protocol)
  return redis.error_reply('LAYOUT ' .. withheld .. ' signalbox: the layout of the queue is not one that protocol ' .. protocol .. ' knows')
end
