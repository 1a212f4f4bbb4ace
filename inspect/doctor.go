package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/doctor"
)

// A Fault says what is wrong: "no_place", say, of a job that is in no list. docs/doctor.md has all of them, how each is repaired, and
// what to do about those that are only reported.
type Fault string

// A Checkup says how [Inspector.Doctor] goes about it. The zero value looks, and changes nothing.
type Checkup struct {
	// Repair repairs what can be repaired.
	Repair bool
	// Pause is how long to wait after each call of Redis. 0: three times as long as the call took. Negative: not at all.
	Pause time.Duration
	// Progress is called from time to time, and at the end: with how many jobs have been looked at, and how many findings there are. It may
	// be nil.
	Progress func(jobs, findings int64)
}

// A Finding is something that was wrong in a queue at one moment.
type Finding struct {
	Queue string
	Fault Fault
	Job   string // the ID of the job that it is about; "" if it is about the queue
	Text  string // what is wrong, in words
	// Repair is what a repair does about it, in words. "": it is only reported.
	Repair string
	// Repaired says that it was repaired.
	Repaired bool
}

// maxFindings bounds the findings that a Report holds.
const maxFindings = 10_000

// A Report is what [Inspector.Doctor] has found.
type Report struct {
	Jobs     int64 // that have been looked at
	Found    int64 // findings
	Repaired int64 // of these
	// Findings are the first 10,000 of them.
	Findings []Finding
	// Unproved is what could not be checked, in words, since it changed all the time or is too much. It is empty nearly always.
	Unproved []string
}

// Doctor checks that each job of a queue is in exactly one state, and that all counts and marks agree with the jobs. Workers and
// producers may go on meanwhile. It looks at what is there when it begins.
//
// It reports only what one script has seen at one moment. So there is no finding because something moved. With Checkup.Repair it repairs a
// finding if it is still so, in the step that looks at it. No job is lost by a repair. A job may run a second time: see docs/doctor.md.
//
// It makes calls of some milliseconds, one at a time, and rests in between. If more than 100,000 jobs are ready, a finding about
// one of them can take a longer call: 30 ms for a million. It holds a page of up to some 250 kB of records, 8 bytes for each ready job, some
// 100 bytes for each running one, and the findings.
//
// After an error the Report has what was found before. The error wraps [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) Doctor(ctx context.Context, queue string, c Checkup) (Report, error) {
	var r Report
	if err := i.known(ctx, queue); err != nil {
		return r, err
	}
	checked, err := doctor.Run(ctx, i.store(queue).Site(), doctor.Checkup{
		Repair: c.Repair, Pause: c.Pause,
		Found: func(f doctor.Finding) {
			if len(r.Findings) < maxFindings {
				r.Findings = append(r.Findings, Finding{
					Queue: queue, Fault: Fault(f.Fault), Job: f.Job, Text: f.Text, Repair: doctor.Remedies[f.Fault], Repaired: f.Mended,
				})
			}
		},
		Progress: func(p doctor.Checked) {
			if c.Progress != nil {
				c.Progress(p.Jobs, p.Found)
			}
		},
	})
	r.Jobs, r.Found, r.Repaired, r.Unproved = checked.Jobs, checked.Found, checked.Mended, checked.Unproved
	if err != nil {
		return r, fmt.Errorf("inspect: check queue %s: %w", queue, err)
	}
	return r, nil
}
