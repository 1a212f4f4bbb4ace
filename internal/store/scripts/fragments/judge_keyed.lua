-- A step of enqueue.lua: handles a new job that has a unique key which no other job has, and is ready at once. judge_other would find the same outcome.
local class, text, envelope = classes[j], args[fixed + 4 * j - 2], args[fixed + 4 * j]
if #envelope + #text - 1 > longest then
  longest = #envelope + #text - 1
end
local scope = byte(text, 6)
local shape = #text * 256 + scope
local head = keyed_heads[class][shape]
if not head then
  local part = #text - 3
  head = '\1' .. class .. '\0\4' .. at .. at .. string.char(math.floor(part / 256), part % 256) .. sub(text, 4, 6)
  keyed_heads[class][shape] = head
end
records[2 * fresh + 1], records[2 * fresh + 2] = id, head .. key .. envelope
fresh, seen[id] = fresh + 1, '0'
local holder = (scope == 101 and 'e ' or 's ') .. id
keys_held[key] = holder
keys_taken = keys_taken or {}
local k = #keys_taken
keys_taken[k + 1], keys_taken[k + 2] = key, holder
local list = ready_now[class]
list[#list + 1] = id
outcomes[j] = '1'
