-- A step of enqueue.lua: makes the record of a job that goes in.
seen[id] = later and 's' or '0'
local envelope = args[fixed + 4 * j]
if extras[j] then
  -- '+', flags, extras: the length of the extras and the extras themselves stand before the envelope.
  local size = #extras[j] - 2
  envelope = string.char(math.floor(size / 256), size % 256) .. string.sub(extras[j], 3) .. envelope
end
if #envelope > longest then
  longest = #envelope
end
records[2 * fresh + 1] = id
if extras[j] or later or entry then
  local flags = extras[j] and string.sub(extras[j], 2, 2) or '\0'
  records[2 * fresh + 2] = '\1' .. class .. '\0' .. flags .. at .. (us and stamp(us) or at) .. envelope
else
  heads[class] = heads[class] or '\1' .. class .. '\0\0' .. at .. at
  records[2 * fresh + 2] = heads[class] .. envelope
end
fresh = fresh + 1
