-- A step of enqueue.lua: makes the record of a job that is put in.
seen[id] = later and 's' or '0'
local envelope = args[fixed + 4 * j]
if extras then
  -- In class, the extras follow '+' and the flags. In the record, their length and the extras stand before the envelope.
  local size = #extras - 2
  envelope = string.char(math.floor(size / 256), size % 256) .. string.sub(extras, 3) .. envelope
end
if #envelope > longest then
  longest = #envelope
end
records[2 * fresh + 1] = id
local flags = extras and string.sub(extras, 2, 2) or '\0'
records[2 * fresh + 2] = '\1' .. class .. '\0' .. flags .. at .. ((later or entry) and stamp(us) or at) .. envelope
fresh = fresh + 1
