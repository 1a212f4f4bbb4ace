-- A step of enqueue.lua: handles a new job that is ready at once. Most jobs are. judge_other would find the same outcome.
local class, envelope = classes[j], args[fixed + 4 * j]
if #envelope > longest then
  longest = #envelope
end
heads[class] = heads[class] or '\1' .. class .. '\0\0' .. at .. at
records[2 * fresh + 1], records[2 * fresh + 2] = id, heads[class] .. envelope
fresh, seen[id] = fresh + 1, '0'
local list = ready_now[class]
list[#list + 1] = id
outcomes[j] = '1'
