-- A step of enqueue.lua and relay.lua: finds the outcome for each of the n jobs. It writes nothing.
local held_back, _, maximum, begins = standing(SETTINGS, STATS, protocol)
if tonumber(held_back) then
  return redis.error_reply('LAYOUT ' .. held_back .. ' signalbox: the layout of the queue is not one that protocol ' .. protocol .. ' knows')
end

local now = clock()
local reckoned = now + (reckons and tonumber(skew) or 0)
local lists = {['0'] = HIGH, ['1'] = NORMAL, ['2'] = LOW}
local args, byte, sub, find = ARGV, string.byte, string.sub, string.find -- a local is read faster
local names -- of classes, by their bytes; nil until a job needs them
local ready_now = {['0'] = {}, ['1'] = {}, ['2'] = {}} -- ids, by class

local lined -- for jobs of groups that are ready: members of LINED and their keys; nil if the call has no groups
local place -- the last one in the lines
local uniques -- the unique keys of jobs; nil if the call has none
local keys_held, keys_taken, windows, cut_short -- the values of these in UNIQUE; those that the call takes, each with its value; their windows; those whose windows go on
local holders, moving, met, updated -- the states of jobs that have keys; those that are being moved; those that are met; those of them that get what others have

-- include: read_jobs, read_queue

local room = math.huge -- how many jobs may be put in
if maximum and not boundless then
  -- include: queue_length
  room = maximum - queue_length()
end

-- include: judge
