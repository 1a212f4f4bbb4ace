package outbox

import (
	"strconv"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// Sequence returns the number of a job in the order of its group. Of two jobs of a group that were written by [Outbox]es of one database with [Config].Ordered, the one whose
// transaction committed later has the larger number; of two that one transaction wrote, the one that was written later. ok is false if the job has none: it was not written by such an outbox, or it has no group.
//
// A job has the same number in each delivery. Its copies have it, too: a copy of a dead job, a job that was moved or imported, a row that a relay sends again. Use it to keep an older job from undoing what a newer
// one has done:
//
//	UPDATE accounts SET email = $1, sequence = $2 WHERE id = $3 AND sequence < $2
//
// Numbers are from 1 to 2^63-1. They have gaps, and other groups have the numbers between. Numbers of other groups, or of another database, mean nothing to each other.
// If the database goes back to an older copy, the numbers that it forgot are given again.
func Sequence(job *signalbox.Job) (n int64, ok bool) {
	n, err := strconv.ParseInt(job.Headers[store.SequenceHeader], 10, 64)
	return n, err == nil && n > 0
}
