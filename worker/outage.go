package worker

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// failed notes that Redis could not be reached, or refused.
func (q *queue) failed(what string, err error) {
	if isOutage(err) {
		q.mu.Lock()
		q.outage = time.Now()
		q.mu.Unlock()
	}
	q.warn("call:"+what, "signalbox: a call to Redis failed, and is made again", "call", what, "error", err)
}

// isOutage tells an error that every worker will have seen from one of a single call: no
// answer from Redis, or one that it does not serve anybody now.
func isOutage(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return true
	}
	for _, prefix := range []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// answered notes that a call that began at start took so long that others' renewals may have
// been held up as well.
func (q *queue) answered(start time.Time) {
	if time.Since(start) < q.w.cfg.SessionTTL/3 {
		return
	}
	q.mu.Lock()
	q.outage = time.Now()
	q.mu.Unlock()
}

// warn logs a warning, at most once a minute for each subject.
func (q *queue) warn(subject, msg string, args ...any) {
	q.mu.Lock()
	again := sayAgain(q.throttled, subject)
	q.mu.Unlock()
	if again {
		q.log.Warn(msg, args...)
	}
}

// sayAgain reports whether a minute has passed since it last said so of the subject. said keeps when
// that was.
func sayAgain(said map[string]time.Time, subject string) bool {
	now := time.Now()
	if last, ok := said[subject]; ok && now.Sub(last) < time.Minute {
		return false
	}
	if len(said) > 1000 {
		clear(said)
	}
	said[subject] = now
	return true
}
