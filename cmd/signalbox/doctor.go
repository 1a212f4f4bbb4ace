package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) doctorCommand() *cobra.Command {
	var repair, yes bool
	c := a.command("doctor [QUEUE...] [flags]", "Prove that each job is in one state, and repair what is wrong", cobra.ArbitraryArgs,
		func(ctx context.Context, queues []string) error {
			if repair && !yes && !a.canAsk() {
				return usage("there is no terminal to ask: want --yes, or leave --repair out to look only")
			}
			if yes && !repair {
				return usage("--yes is for --repair")
			}
			ins, err := a.inspector(ctx)
			if err != nil {
				return err
			}
			var left error // queues that can't be read
			if len(queues) == 0 {
				all, err := ins.Queues(ctx)
				if left = err; err != nil && len(all) == 0 {
					return err
				}
				if len(all) == 0 {
					a.noQueue()
				}
				for i := range all {
					queues = append(queues, all[i].Name)
				}
			}
			return errors.Join(a.doctor(ctx, ins, queues, repair, yes), left)
		})
	c.Long = `Check all queues, or those named, while they are in use: that each job is in
exactly one state, and that all counts and marks agree with the jobs. What it
finds was so at one moment; it never takes a job that moves for a lost one.

With --repair it looks, asks, and repairs what is still wrong. The status is 6
if findings are left. Each finding and its repair:
` + guide + "doctor.md"
	c.Example = `  signalbox doctor
  signalbox doctor mail -o json
  signalbox doctor mail --repair`
	c.Flags().BoolVar(&repair, "repair", false, "repair what can be repaired")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	c.ValidArgsFunction = a.completeQueues(-1)
	return c
}

// doctorJSON is what the doctor has found.
type doctorJSON struct {
	Queues   int           `json:"queues"`
	Jobs     int64         `json:"jobs"`
	Findings []findingJSON `json:"findings"`
	Unproved []string      `json:"unproved,omitempty"`
}

type findingJSON struct {
	Queue    string        `json:"queue"`
	Fault    inspect.Fault `json:"fault"`
	Job      string        `json:"job"`
	Text     string        `json:"text"`
	Repair   string        `json:"repair"`
	Repaired bool          `json:"repaired"`
}

// A diagnosis is what the doctor has found in all queues.
type diagnosis struct {
	doctorJSON
	found, repaired int64
	repairable      map[inspect.Fault]int // of the findings that are listed
}

// plan says how many findings of each fault a repair is for: "3 of 4 findings (1 bytes, 2 no_place)".
func (d *diagnosis) plan() string {
	var faults []string
	sum := 0
	for _, fault := range slices.Sorted(maps.Keys(d.repairable)) {
		faults = append(faults, fmt.Sprintf("%d %s", d.repairable[fault], fault))
		sum += d.repairable[fault]
	}
	return fmt.Sprintf("%d of %s (%s)", sum, findings(d.found), strings.Join(faults, ", "))
}

// doctor checks queues, and repairs them if that is asked for and agreed to.
func (a *app) doctor(ctx context.Context, ins *inspect.Inspector, queues []string, repair, yes bool) error {
	d, failed := a.check(ctx, ins, queues, repair && yes)
	if repair && !yes && failed == nil && len(d.repairable) > 0 {
		a.printFindings(&d)
		a.flush()
		if err := a.confirm("Repair %s?", d.plan()); err != nil {
			return err
		}
		d, failed = a.check(ctx, ins, queues, true)
	}
	if failed != nil && d.Queues == 0 && d.found == 0 {
		return failed
	}
	if a.json() {
		if err := a.document(d.doctorJSON); err != nil {
			return err
		}
	} else {
		a.printFindings(&d)
	}
	for _, text := range d.Unproved {
		a.note("not checked: %s", clean(text))
	}
	if failed != nil {
		return failed
	}
	if d.found > d.repaired {
		return &findingsError{d.found, d.repaired}
	}
	return nil
}

// check checks queues, one after the other, also if one can't be checked. d.Queues counts those that could be.
func (a *app) check(ctx context.Context, ins *inspect.Inspector, queues []string, repair bool) (d diagnosis, err error) {
	d.Findings, d.repairable = []findingJSON{}, make(map[inspect.Fault]int)
	p := a.progress("")
	defer p.end()
	for _, queue := range queues {
		r, failed := ins.Doctor(ctx, queue, inspect.Checkup{Repair: repair, Progress: func(jobs, found int64) {
			p.print(func() string { return fmt.Sprintf("queue %s: %s, %s", queue, count(jobs), findings(found)) })
		}})
		d.Jobs += r.Jobs
		d.found, d.repaired = d.found+r.Found, d.repaired+r.Repaired
		for _, f := range r.Findings {
			d.Findings = append(d.Findings, findingJSON(f))
			if f.Repair != "" && !f.Repaired {
				d.repairable[f.Fault]++
			}
		}
		for _, text := range r.Unproved {
			d.Unproved = append(d.Unproved, "queue "+queue+": "+text)
		}
		if failed != nil {
			err = errors.Join(err, failed)
			if ctx.Err() != nil {
				return d, err
			}
			continue
		}
		d.Queues++
	}
	return d, err
}

func (a *app) printFindings(d *diagnosis) {
	if a.json() {
		return
	}
	t := a.table(column{name: "QUEUE", cut: 8}, column{name: "FAULT"}, column{name: "REPAIR", cut: 8, drop: 1}, column{name: "FINDING", cut: 20})
	for _, f := range d.Findings {
		remedy := f.Repair
		if f.Repaired {
			remedy = "done"
		}
		t.row(f.Queue, string(f.Fault), remedy, f.Text)
	}
	t.flushRows()
	more := ""
	if n := d.found - int64(len(d.Findings)); n > 0 {
		more = fmt.Sprintf(" (%d are not listed)", n)
	}
	if d.repaired > 0 {
		more += fmt.Sprintf(", %d repaired", d.repaired)
	}
	queues := "1 queue"
	if d.Queues != 1 {
		queues = fmt.Sprintf("%d queues", d.Queues)
	}
	fmt.Fprintf(a.out, "%s, %s: %s%s\n", queues, count(d.Jobs), findings(d.found), more)
}

func findings(n int64) string {
	switch n {
	case 0:
		return "no finding"
	case 1:
		return "1 finding"
	}
	return fmt.Sprintf("%d findings", n)
}

// A findingsError says that the doctor has findings left.
type findingsError struct{ found, repaired int64 }

func (e *findingsError) Error() string {
	if e.repaired > 0 {
		return fmt.Sprintf("%s, %d repaired; %sdoctor.md says what to do about the others", findings(e.found), e.repaired, guide)
	}
	return findings(e.found) + "; " + guide + "doctor.md says what each means"
}
