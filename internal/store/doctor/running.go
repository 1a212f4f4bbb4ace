package doctor

import (
	"context"
	"fmt"

	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// counts compares how many jobs each session is counted to run, for the queue's limit of running jobs, with what it runs. One script reads
// both.
func (d *doctor) counts(ctx context.Context) error {
	var wrong []string
	err := d.with(ctx, func(sessions []string) (again bool, err error) {
		keys := scripts.Running.Keys(&d.q.Keys)
		for _, session := range sessions {
			keys = append(keys, d.q.Keys.Inflight(session))
		}
		r, err := scripts.Running.Run(ctx, d.q.Client, keys, scripts.Running.Args(0, scripts.Arg("inflight", d.q.Keys.Inflight(""))))
		if err != nil {
			return false, err
		}
		if err := r.Status("ok", "again"); err != nil || r.Str(0) == "again" {
			return err == nil, err
		}
		wrong = r.Strs(1)
		return false, r.Err
	})
	for ; err == nil && len(wrong) >= 3; wrong = wrong[3:] {
		err = d.miscounted(ctx, wrong[0], wrong[1], wrong[2])
	}
	return err
}

func (d *doctor) miscounted(ctx context.Context, session, has, right string) error {
	done, err := d.mend(ctx, nil, Step{Verb: "count", A: session})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("session %.200q counts as running %.40q jobs for the queue's limit, it should be %q", session, has, right)
	d.find(facts.WrongRunning, "", text, done)
	return nil
}
