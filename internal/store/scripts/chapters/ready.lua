-- Ready lists, and what is taken from them.

-- Makes jobs ready. This is the only place that does so. It adds them to the tail of a ready list, or to its head if first is true.
-- withheld: see read_settings. Returns whether to wake a worker for them, and the length of the list.
local function make_ready(list, ids, first, withheld)
  local waiting
  if first then
    waiting = redis.call('LPUSH', list, unpack(ids))
  else
    waiting = redis.call('RPUSH', list, unpack(ids))
  end
  return withheld == '', waiting -- no wake-up while the queue is held back: resuming it wakes a worker
end

-- The ready lists, by the classes of their jobs.
local ready_lists = {['0'] = HIGH, ['1'] = NORMAL, ['2'] = LOW, ['s'] = SUSPECT}

-- Returns what a claim knows of the ready lists, which the functions below are given:
--   lengths: the length of each, by its key
--   withheld: see read_settings
--   suspects: whether a suspect became ready, or was taken from among others
--   grown: the largest record that was written
local function new_ready(withheld)
  local lengths = {}
  for _, list in pairs(ready_lists) do
    lengths[list] = redis.call('LLEN', list)
  end
  return {lengths = lengths, withheld = withheld, suspects = false, grown = 0}
end

-- Makes jobs of a class ready: at the tail of its list, or at the head if first is true.
local function enter(ready, class, ids, first)
  local list = ready_lists[class] or NORMAL
  local _, length = make_ready(list, ids, first, ready.withheld)
  ready.lengths[list] = length
  ready.suspects = ready.suspects or class == 's'
end

-- Reports whether want records, of which none has more than largest bytes, if that is known, may be too large to be read without measuring them first. Small records never are.
local function large(want, largest, bytes)
  return not largest or not (largest <= 4096 or want * largest <= bytes)
end

-- Begins a draw, which the functions below are given:
--   popped: the IDs that were drawn
--   flags: of the first ones, which are suspects, what stands behind their tokens
--   from: by number, the group of a job that was drawn from its line
--   cut_short: whether some were left since their records have no room in the reply, or since the call has been long enough
--   want: how many may be drawn in all
--   room: how many bytes the records of further jobs may have
--   measure: whether a record may be so large that its size is to be known before it is read
--   waiting: the length of each ready list, by its key
--   odd: 0 or 1, which says who gets an odd job, a list or the lines
--   crowded: whether suspects were left that another call could have
local function new_draw(want, room, measure, waiting, seq)
  return {popped = {}, flags = {}, from = {}, want = want, room = room, measure = measure, waiting = waiting, odd = seq % 2} -- Lua makes room for 8 fields, or for 16
end

-- Takes the first n IDs from a ready list.
local function pop(draw, list, n)
  local ids, popped = redis.call('LPOP', list, n), draw.popped
  draw.waiting[list] = draw.waiting[list] - #ids
  if #popped == 0 then
    draw.popped = ids
  else
    for i = 1, #ids do
      popped[#popped + 1] = ids[i]
    end
  end
end
