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

func TestResolve(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	got, err := Resolve(note{7}, Queue("mail"), ID("a"), At(at), Priority(signalbox.PriorityHigh), MaxAttempts(3), Timeout(time.Second),
		Header("tenant", "acme"), EffectKey("order-17"), IfAbsent(), Retain(time.Hour+time.Nanosecond), Serial("a"), YieldOnRetry(), ExpireAfter(time.Minute+time.Nanosecond))
	want := Plan{
		Job: signalbox.Job{
			ID: "a", Kind: "note", Queue: "mail", Payload: []byte(`{"N":7}`), Headers: map[string]string{"tenant": "acme"},
			Priority: signalbox.PriorityHigh, MaxAttempts: 3, Timeout: time.Second, Effect: "order-17", Retain: time.Hour, ExpireAfter: time.Minute, Group: "a", Serial: true, YieldOnRetry: true,
		},
		At: at, IfAbsent: true,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	got, err = Resolve(note{7}, After(time.Minute))
	want = Plan{
		Job:   signalbox.Job{Kind: "note", Queue: "default", Payload: []byte(`{"N":7}`), MaxAttempts: signalbox.DefaultMaxAttempts},
		After: time.Minute,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// A kind's defaults say when its jobs expire, and the call has the last word.
func TestExpireAfterOfAKind(t *testing.T) {
	t.Parallel()
	args := report{with: &signalbox.Defaults{ExpireAfter: time.Minute + 1}}
	for want, opts := range map[time.Duration][]EnqueueOption{time.Minute: nil, time.Hour: {ExpireAfter(time.Hour)}, 0: {ExpireAfter(0)}} {
		if got, err := Resolve(args, opts...); err != nil || got.Job.ExpireAfter != want {
			t.Errorf("got %v, %v; want %v", got.Job.ExpireAfter, err, want)
		}
	}
}

// A deadline counts instead of an expiry of the kind, and the other way around for an option of the call.
func TestDeadlineOfACall(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 6789, time.UTC)
	args := report{with: &signalbox.Defaults{ExpireAfter: time.Minute}}
	got, err := Resolve(args, Deadline(at))
	if err != nil || got.Job.ExpireAfter != 0 || !got.Job.Deadline.Equal(at.Truncate(time.Microsecond)) {
		t.Errorf("got %+v, %v", got.Job, err)
	}
	given, err := defaults.with(nil, []EnqueueOption{Deadline(at)})
	if err != nil {
		t.Fatal(err)
	}
	if given, err = given.with(nil, []EnqueueOption{ExpireAfter(time.Hour)}); err != nil || given.expire != time.Hour || !given.deadline.IsZero() {
		t.Errorf("a list behind another has %v, %v; %v", given.expire, given.deadline, err)
	}
}

// Resolve refuses the same calls as Enqueue.
func TestResolveRefuses(t *testing.T) {
	t.Parallel()
	s := offlineWith(t, Config{})
	for _, tc := range []struct {
		args signalbox.Args
		opts []EnqueueOption
	}{
		{nil, nil},
		{note{}, []EnqueueOption{Queue("a b"), ID("{")}},
		{note{}, []EnqueueOption{nil}},
		{note{}, []EnqueueOption{EffectKey("")}},
		{note{}, []EnqueueOption{EffectKey("{default}x")}},
		{note{}, []EnqueueOption{EffectKey(strings.Repeat("x", 201))}},
		{note{}, []EnqueueOption{Header("traceparent", "x")}},
		{note{}, []EnqueueOption{Group("a b")}},
		{note{}, []EnqueueOption{Group("a"), Serial("a")}},
	} {
		_, err := Resolve(tc.args, tc.opts...)
		_, other := s.Enqueue(context.Background(), tc.args, tc.opts...)
		if !errors.Is(err, signalbox.ErrInvalid) || other == nil || strings.TrimPrefix(err.Error(), "scheduler: resolve: ") != strings.TrimPrefix(other.Error(), "scheduler: enqueue: ") {
			t.Errorf("%v\n%v", err, other)
		}
	}
}

func TestWrongEnqueueTimeout(t *testing.T) {
	t.Parallel()
	s := offlineWith(t, Config{})
	for _, d := range []time.Duration{-1, time.Microsecond, 2 * time.Hour} {
		if _, err := New(s.rdb, Config{EnqueueTimeout: d}); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "EnqueueTimeout") {
			t.Errorf("EnqueueTimeout %v: %v", d, err)
		}
	}
}
