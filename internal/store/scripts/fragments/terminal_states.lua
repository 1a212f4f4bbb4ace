-- Gives the local terminal its value: the states in which a job has ended and is kept. set has their ids, scored by the time of
-- their end; bytes is the counter of their bytes in stats; met is the outcome of an enqueue that meets such a job. A completed
-- job is not kept.
terminal = {
  dead = {set = DEAD, bytes = 'dead_bytes', met = 'd'},
  cancelled = {set = CANCELLED, bytes = 'cancelled_bytes', met = 'c'},
}
