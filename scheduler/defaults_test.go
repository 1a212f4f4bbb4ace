package scheduler

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// A report has defaults that depend on its args.
type report struct {
	Large bool
	with  *signalbox.Defaults
}

func (report) Kind() string { return "report" }

func (r report) Defaults() signalbox.Defaults {
	if r.with != nil {
		return *r.with
	}
	d := signalbox.Defaults{Queue: "reports", MaxAttempts: 3, Timeout: time.Minute, Priority: signalbox.PriorityLow, TraceMode: signalbox.TraceLink}
	if r.Large {
		d.Timeout = time.Hour
	}
	return d
}

// The options of a call override the defaults of the kind, which override the defaults of all kinds.
func TestDefaultsOfAKind(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args signalbox.Args
		opts []EnqueueOption
		want signalbox.Job
	}{
		"alone": {
			report{},
			nil,
			signalbox.Job{Queue: "reports", MaxAttempts: 3, Timeout: time.Minute, Priority: signalbox.PriorityLow},
		},
		"by the args": {
			report{Large: true},
			nil,
			signalbox.Job{Queue: "reports", MaxAttempts: 3, Timeout: time.Hour, Priority: signalbox.PriorityLow},
		},
		"a pointer": {
			&report{}, nil,
			signalbox.Job{Queue: "reports", MaxAttempts: 3, Timeout: time.Minute, Priority: signalbox.PriorityLow},
		},
		"options": {
			report{},
			[]EnqueueOption{Timeout(0), Priority(signalbox.PriorityNormal), Queue(signalbox.DefaultQueue)},
			signalbox.Job{Queue: "default", MaxAttempts: 3},
		},
		"of one field": {
			report{with: &signalbox.Defaults{Timeout: time.Second}},
			[]EnqueueOption{ID("a")},
			signalbox.Job{ID: "a", Queue: "default", MaxAttempts: signalbox.DefaultMaxAttempts, Timeout: time.Second},
		},
		"a group": {
			report{with: &signalbox.Defaults{Group: "reports"}},
			nil,
			signalbox.Job{Queue: "default", MaxAttempts: signalbox.DefaultMaxAttempts, Group: "reports"},
		},
		"a serial group": {
			report{with: &signalbox.Defaults{Serial: "reports", YieldOnRetry: true}},
			nil,
			signalbox.Job{Queue: "default", MaxAttempts: signalbox.DefaultMaxAttempts, Group: "reports", Serial: true, YieldOnRetry: true},
		},
		"another group": {
			report{with: &signalbox.Defaults{Serial: "reports", YieldOnRetry: true}},
			[]EnqueueOption{Group("acme")},
			signalbox.Job{Queue: "default", MaxAttempts: signalbox.DefaultMaxAttempts, Group: "acme"},
		},
		"none": {
			report{with: &signalbox.Defaults{}},
			nil,
			signalbox.Job{Queue: "default", MaxAttempts: signalbox.DefaultMaxAttempts},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Resolve(tc.args, tc.opts...)
			tc.want.Kind, tc.want.Payload = "report", got.Job.Payload
			if err != nil || !reflect.DeepEqual(got.Job, tc.want) {
				t.Errorf("got %+v, %v; want %+v", got.Job, err, tc.want)
			}
		})
	}
}

// Enqueue and EnqueueMany use a kind's defaults. In EnqueueMany the options for all jobs override them.
func TestDefaultsInCalls(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, q := setup(t)
	in := func(d signalbox.Defaults) signalbox.Args {
		d.Queue = q.Name()
		return report{with: &d}
	}
	_, err1 := s.Enqueue(ctx, in(signalbox.Defaults{MaxAttempts: 1, Priority: signalbox.PriorityHigh}), ID("one"))
	_, err2 := s.EnqueueMany(ctx, []Item{
		{in(signalbox.Defaults{MaxAttempts: 2, Timeout: time.Second}), []EnqueueOption{ID("call")}},
		{in(signalbox.Defaults{MaxAttempts: 2, Timeout: time.Second}), []EnqueueOption{ID("item"), Timeout(time.Minute)}},
		{in(signalbox.Defaults{MaxAttempts: 4}), []EnqueueOption{ID("other")}},
		{note{}, []EnqueueOption{ID("none"), Queue(q.Name())}},
		{in(signalbox.Defaults{Retain: time.Minute}), []EnqueueOption{ID("kept")}},
		{in(signalbox.Defaults{Retain: time.Minute}), []EnqueueOption{ID("not-kept"), Retain(signalbox.RetainNone)}},
		{in(signalbox.Defaults{Retain: time.Minute}), []EnqueueOption{ID("as-the-queue"), Retain(0)}},
	}, Timeout(time.Hour))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]signalbox.Job)
	for _, j := range claimAll(t, q) {
		got[j.ID] = signalbox.Job{MaxAttempts: j.MaxAttempts, Timeout: j.Timeout, Priority: j.Priority, Retain: j.Retain}
	}
	want := map[string]signalbox.Job{
		"one":   {MaxAttempts: 1, Priority: signalbox.PriorityHigh},
		"call":  {MaxAttempts: 2, Timeout: time.Hour},
		"item":  {MaxAttempts: 2, Timeout: time.Minute},
		"other": {MaxAttempts: 4, Timeout: time.Hour},
		"none":  {MaxAttempts: signalbox.DefaultMaxAttempts, Timeout: time.Hour},

		"kept":         {MaxAttempts: signalbox.DefaultMaxAttempts, Timeout: time.Hour, Retain: time.Minute},
		"not-kept":     {MaxAttempts: signalbox.DefaultMaxAttempts, Timeout: time.Hour, Retain: signalbox.RetainNone},
		"as-the-queue": {MaxAttempts: signalbox.DefaultMaxAttempts, Timeout: time.Hour},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// The trace mode in a kind's defaults applies to its jobs.
func TestTraceModeOfAKind(t *testing.T) {
	t.Parallel()
	ctx, s, q, _ := tracedSetup(t, nil)
	args := report{with: &signalbox.Defaults{Queue: q.Name(), TraceMode: signalbox.TraceNone}}
	_, err1 := s.Enqueue(ctx, args)
	_, err2 := s.EnqueueMany(ctx, []Item{{Args: args}})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for _, j := range claimAll(t, q) {
		if j.Headers[modeHeader] != "none" {
			t.Errorf("headers %v", j.Headers)
		}
	}
}

func TestDefaultsOfACronEntry(t *testing.T) {
	t.Parallel()
	s := offline(t)
	e, err := s.newEntry("e", "@daily", report{}, []CronOption{MaxAttempts(7)})
	if err != nil {
		t.Fatal(err)
	}
	if j := e.job; j.Queue != "reports" || j.MaxAttempts != 7 || j.Timeout != time.Minute || j.Priority != signalbox.PriorityLow || e.mode != signalbox.TraceLink {
		t.Errorf("got %+v, mode %v", j, e.mode)
	}
}

// byPointer has the method Defaults only on its pointer.
type byPointer struct{}

func (byPointer) Kind() string                  { return "pointer" }
func (*byPointer) Defaults() signalbox.Defaults { return signalbox.Defaults{Queue: "q"} }

type panicking struct{}

func (panicking) Kind() string                 { return "panicking" }
func (panicking) Defaults() signalbox.Defaults { panic("s3cret") }

// Every mistake in the defaults is reported with its field and the kind, and nothing is sent.
func TestWrongDefaults(t *testing.T) {
	t.Parallel()
	wrong := func(d signalbox.Defaults) signalbox.Args { return report{with: &d} }
	for name, tc := range map[string]struct {
		args signalbox.Args
		want []string
	}{
		"Queue":       {wrong(signalbox.Defaults{Queue: "a b"}), []string{"Defaults of kind report", "Queue", `' '`}},
		"Priority":    {wrong(signalbox.Defaults{Priority: 9}), []string{"Defaults of kind report", "Priority(9)"}},
		"MaxAttempts": {wrong(signalbox.Defaults{MaxAttempts: -1}), []string{"Defaults of kind report", "MaxAttempts: -1"}},
		"Timeout":     {wrong(signalbox.Defaults{Timeout: -1}), []string{"Defaults of kind report", "Timeout: -1ns"}},
		"Group":       {wrong(signalbox.Defaults{Group: "a b"}), []string{"Defaults of kind report", "Group", "a b"}},
		"Serial":      {wrong(signalbox.Defaults{Serial: "a b"}), []string{"Defaults of kind report", "Serial", "a b"}},
		"two groups":  {wrong(signalbox.Defaults{Group: "a", Serial: "b"}), []string{"Defaults of kind report", "Group: it is given together with Serial"}},
		"ExpireAfter": {wrong(signalbox.Defaults{ExpireAfter: -time.Hour}), []string{"Defaults of kind report", "ExpireAfter: -1h0m0s"}},
		"Retain":      {wrong(signalbox.Defaults{Retain: -time.Hour}), []string{"Defaults of kind report", "Retain: -1h0m0s"}},
		"TraceMode":   {wrong(signalbox.Defaults{TraceMode: 4}), []string{"Defaults of kind report", "TraceMode: 4"}},
		"all at once": {
			wrong(signalbox.Defaults{Queue: "{", Priority: 9, MaxAttempts: -1, Timeout: -1, TraceMode: 9}),
			[]string{"Queue", "Priority", "MaxAttempts", "Timeout", "TraceMode", "Header"},
		},
		"pointer":   {byPointer{}, []string{"Defaults of kind pointer", "scheduler.byPointer", "receiver"}},
		"panicking": {panicking{}, []string{"args", "panicking", "panicked"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := offline(t)
			opt, want := TraceMode(0), tc.want
			if name == "all at once" {
				opt = Header("", "")
			}
			_, err1 := s.Enqueue(context.Background(), tc.args, opt)
			results, err2 := s.EnqueueMany(context.Background(), []Item{{tc.args, []EnqueueOption{opt}}})
			_, err3 := Resolve(tc.args, opt)
			for _, err := range []error{err1, err2, results[0].Err, err3, s.Cron("e", "@daily", tc.args, opt)} {
				wantInvalid(t, err, want)
				if strings.Contains(err.Error(), "s3cret") {
					t.Errorf("the value of a panic is in the error: %v", err)
				}
			}
		})
	}
	if _, err := Resolve(&byPointer{}); err != nil {
		t.Errorf("a pointer to args whose defaults have a pointer receiver: %v", err)
	}
}
