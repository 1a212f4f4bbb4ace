package store

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// maxProgress is of how many jobs of a session the progress is kept: of those that run for longest.
const maxProgress = 1000

// Progress is how far a running job is, as its handler says.
type Progress struct {
	ID          string
	Token       int64
	Done, Total int64 // units of work; a total of 0 is not known
	Note        string
	At          time.Time // when the handler said it, by the server's clock
}

type progressJSON struct {
	ID    string `json:"id"`
	Token int64  `json:"token"`
	Done  int64  `json:"done"`
	Total int64  `json:"total,omitempty"`
	Note  string `json:"note,omitempty"`
	At    int64  `json:"at"` // us
}

// WriteProgress keeps how far jobs of a session are, for ttl, in one command. Without any, nothing is kept.
func (ss *Sessions) WriteProgress(ctx context.Context, session string, ttl time.Duration, jobs []Progress) error {
	key := ss.q.keys.Progress(session)
	if len(jobs) == 0 {
		return ss.q.rdb.Del(ctx, key).Err()
	}
	if len(jobs) > maxProgress {
		jobs = slices.SortedFunc(slices.Values(jobs), func(a, b Progress) int { return cmp.Compare(a.Token, b.Token) })[:maxProgress]
	}
	all := make([]progressJSON, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		all[i] = progressJSON{ID: j.ID, Token: j.Token, Done: j.Done, Total: j.Total, Note: j.Note, At: j.At.UnixMicro()}
	}
	return ss.setNote(ctx, key, ttl, all)
}

// Progress returns how far jobs of a session are, as its worker has last written. What it can't read counts as none.
func (ss *Sessions) Progress(ctx context.Context, session string) ([]Progress, error) {
	all, err := readNote[progressJSON](ctx, ss.q, ss.q.keys.Progress(session))
	if err != nil || all == nil {
		return nil, err
	}
	jobs := make([]Progress, len(all))
	for i, j := range all {
		jobs[i] = Progress{ID: j.ID, Token: j.Token, Done: j.Done, Total: j.Total, Note: j.Note, At: time.UnixMicro(j.At)}
	}
	return jobs, nil
}
