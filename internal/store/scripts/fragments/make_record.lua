-- A step of enqueue.lua: makes the record of a job that is put in.
seen[id] = later and 's' or '0'
local envelope = args[fixed + 4 * j]
local due_at = at
if later or entry or group then
  -- The times of a call mostly differ in the last byte alone.
  local low = us % 256
  if us - low ~= stamped then
    stamped, stamp_head = us - low, string.sub(stamp(us), 1, 7)
  end
  due_at = stamp_head .. string.char(low)
end
local record, size
if extras then
  -- In class, the extras follow '+' and the flags. In the record, their length and the extras stand before the envelope.
  local part = #extras - 2
  record = (detail.version or '\1') .. class .. '\0' .. string.sub(extras, 2, 2) .. at .. due_at
    .. string.char(math.floor(part / 256), part % 256) .. string.sub(extras, 3) .. envelope
  size = #envelope + #extras
else
  record = (detail.version or '\1') .. class .. '\0\0' .. at .. due_at .. envelope
  size = #envelope
end
if size > longest then
  longest = size
end
records[2 * fresh + 1], records[2 * fresh + 2] = id, record
fresh = fresh + 1
