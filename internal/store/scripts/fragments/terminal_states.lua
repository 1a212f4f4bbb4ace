-- Sets the local variable terminal to the states of jobs that have ended and are kept. Completed ones are kept if the queue's settings
-- say so. Each state has:
-- set, the sorted set of its ids, scored by the time of their end;
-- bytes, the field of stats that counts its bytes;
-- met, the outcome of an enqueue that finds a job in this state.
terminal = {
  dead = {set = DEAD, bytes = 'dead_bytes', met = 'd'},
  cancelled = {set = CANCELLED, bytes = 'cancelled_bytes', met = 'c'},
  completed = {set = COMPLETED, bytes = 'completed_bytes', met = 'f'},
}
