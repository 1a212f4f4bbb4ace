package facts

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// TokenOf returns the token of what a session holds, or of the mark of a job that was cancelled while it runs. It is 0 if that can't be read.
func TokenOf(value string) int64 {
	token, err := strconv.ParseInt(FieldsOf(value).Token, 10, 64)
	if err != nil {
		return 0
	}
	return token
}

// OwnerOf returns the ID of the worker that has a session, or the session's name if another program has opened it.
func OwnerOf(session string) string {
	if worker := workerOf(session); worker != "" {
		return worker
	}
	return session
}

// workerOf returns the ID of the worker that has a session. It is "" for a session that another program has opened.
func workerOf(session string) string {
	_, worker, _ := strings.Cut(session, "@")
	return worker
}

// Workers returns the IDs of the workers that have a session with the queue, sorted.
func (q *Site) Workers(ctx context.Context) ([]string, error) {
	sessions, err := q.Client.ZRange(ctx, q.Keys.Sessions, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	return WorkersOf(sessions), nil
}

// WorkersOf returns the IDs of the workers that have some of the sessions, sorted.
func WorkersOf(sessions []string) []string {
	var workers []string
	for _, session := range sessions {
		if worker := workerOf(session); worker != "" {
			workers = append(workers, worker)
		}
	}
	slices.Sort(workers)
	return slices.Compact(workers)
}

// A Grant is what a session's hash has for a job that it runs; value begins with the token.
type Grant struct {
	ID, Value string
	Token     int64
}
