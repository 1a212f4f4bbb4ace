-- A step of enqueue.lua: reads the time of a job that a tool enqueues for a cron entry, outside of its ticks. It is due now.
local name, overlap = string.match(when, '^&([!-z|~]+) ([sqc])$')
if name and #name <= 200 and (overlap ~= 'q' or serial) then
  detail.run, detail.overlap, overlaps, us = name, overlap, true, '0'
  entries = entries or {}
  entries[#entries + 1] = name
end
