package doctor

import (
	"context"

	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// A Step is one change of a repair, as steps_of in chapters/repairs.lua has it.
type Step struct{ Verb, A, B string }

// Mend does steps for a job that is as facts say, or for the queue if f is nil. done is false if it isn't so any more: nothing was
// changed then.
func Mend(ctx context.Context, q *facts.Site, sessions []string, f *facts.Job, steps ...Step) (done, again bool, err error) {
	keys := scripts.Mend.Keys(&q.Keys)
	for _, session := range sessions {
		keys = append(keys, q.Keys.Inflight(session))
	}
	if f == nil {
		f = &facts.Job{}
	}
	args := scripts.Mend.Args(3*len(steps), scripts.Arg("protocol", layout.Protocol), scripts.Arg("inflight", q.Keys.Inflight("")),
		scripts.Arg("channels", q.Keys.Channel("")), scripts.Arg("search", scripts.Flag(f.Searched)), scripts.Arg("id", f.ID), scripts.Arg("digest", f.Digest))
	for _, s := range steps {
		args = append(args, s.Verb, s.A, s.B)
	}
	r, err := scripts.Mend.Run(ctx, q.Client, keys, args)
	if err != nil {
		return false, false, err
	}
	if err := r.Status("ok", "again"); err != nil {
		return false, false, err
	}
	if r.Str(0) == "again" {
		return false, true, nil
	}
	done = r.Int(2) > 0
	return done, false, r.Err
}
