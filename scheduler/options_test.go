package scheduler

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/propagation"

	"github.com/signalbox-go/signalbox"
)

// offline is a scheduler that must not get as far as Redis.
func offline(t *testing.T) *Scheduler {
	t.Helper()
	return offlineWith(t, Config{Propagator: ownHeader{}})
}

func offlineWith(t *testing.T, config Config) *Scheduler {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { rdb.Close() })
	s, err := New(rdb, config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ownHeader is a propagator with a header of its own.
type ownHeader struct{ propagation.TraceContext }

func (ownHeader) Fields() []string { return []string{"X-Own"} }

func TestNewRefusesNil(t *testing.T) {
	t.Parallel()
	for _, rdb := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		if _, err := New(rdb, Config{}); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "rdb") {
			t.Errorf("%T: got %v", rdb, err)
		}
	}
}

func TestWrongOptions(t *testing.T) {
	t.Parallel()
	s := offline(t)
	for name, tc := range map[string]struct {
		opts []Option
		want []string // in the error
	}{
		"queue empty":     {[]Option{Queue("")}, []string{"queue", "empty"}},
		"queue braces":    {[]Option{Queue("a{b}")}, []string{"queue", `'{'`}},
		"queue space":     {[]Option{Queue("a b")}, []string{"queue", `' '`}},
		"queue NUL":       {[]Option{Queue("a\x00b")}, []string{"queue", `'\x00'`}},
		"queue long":      {[]Option{Queue(strings.Repeat("q", 201))}, []string{"queue", "201 bytes"}},
		"queue not ASCII": {[]Option{Queue("käse")}, []string{"queue"}},
		"ID empty":        {[]Option{ID("")}, []string{"job ID", "empty"}},
		"ID space":        {[]Option{ID("a b")}, []string{"job ID"}},
		"At zero":         {[]Option{At(time.Time{})}, []string{"At"}},
		"At late":         {[]Option{At(time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC))}, []string{"At", "2255"}},
		"After long":      {[]Option{After(math.MaxInt64)}, []string{"After"}},
		"At and After":    {[]Option{At(time.Now()), After(time.Hour)}, []string{"At", "After"}},
		"MaxAttempts 0":   {[]Option{MaxAttempts(0)}, []string{"MaxAttempts", "0"}},
		"MaxAttempts big": {[]Option{MaxAttempts(math.MaxInt)}, []string{"MaxAttempts"}},
		"Priority":        {[]Option{Priority(9)}, []string{"Priority(9)"}},
		"Timeout":         {[]Option{Timeout(-1)}, []string{"Timeout", "-1ns"}},
		"Header no name":  {[]Option{Header("", "v")}, []string{"Header"}},
		"Header name":     {[]Option{Header("\xff", "v")}, []string{"Header", "UTF-8"}},
		"Header value":    {[]Option{Header("k", "\xff")}, []string{"Header", `"k"`, "UTF-8"}},
		"Header size":     {[]Option{Header("k", strings.Repeat("v", 40<<10)), Header("l", strings.Repeat("v", 40<<10))}, []string{"Header", "81922"}},
		"Header reserved": {[]Option{Headers(map[string]string{"TraceParent": "x"})}, []string{"Header", "reserved"}},
		"Header baggage":  {[]Option{Header("baggage", "x")}, []string{"Header", "reserved"}},
		"Header since":    {[]Option{Header("signalbox-trace-since", "1")}, []string{"Header", "reserved"}},
		"Header mode":     {[]Option{Header("Signalbox-Trace-Mode", "link")}, []string{"Header", "reserved"}},
		"TraceMode":       {[]Option{TraceMode(4)}, []string{"TraceMode", "4"}},
		"Header own":      {[]Option{Header("x-own", "x")}, []string{"Header", "reserved"}},
		"In":              {[]Option{In(time.UTC)}, []string{"In", "Cron"}},
		"In nil":          {[]Option{In(nil)}, []string{"In", "nil"}},
		"nil option":      {[]Option{nil}, []string{"option", "number 1"}},
		"all at once": {
			[]Option{Queue("{"), ID(" "), MaxAttempts(-1), Priority(7), Timeout(-1), Header("", ""), In(nil), nil},
			[]string{"queue", "job ID", "MaxAttempts", "Priority", "Timeout", "Header", "In", "number 8"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := s.Enqueue(context.Background(), note{}, tc.opts...)
			wantInvalid(t, err, tc.want)
			if res != (Result{}) {
				t.Errorf("a result: %+v", res)
			}
			results, err := s.EnqueueMany(context.Background(), []Item{{Args: note{}, Options: tc.opts}})
			wantInvalid(t, err, tc.want)
			if len(results) != 1 || !errors.Is(results[0].Err, signalbox.ErrInvalid) {
				t.Errorf("results: %+v", results)
			}
		})
	}
}

func TestOptionsOutOfPlace(t *testing.T) {
	t.Parallel()
	s := offline(t)
	results, err := s.EnqueueMany(context.Background(), make([]Item, 3), ID("a"), In(time.UTC))
	wantInvalid(t, err, []string{"ID", "In", "none of 3"})
	if len(results) != 3 || results[2].Err == nil {
		t.Errorf("results: %+v", results)
	}
	wantInvalid(t, s.Cron("e", "@daily", note{}, At(time.Now()), After(1), ID("a")), []string{"At", "After", "ID"})
}

func wantInvalid(t *testing.T, err error, parts []string) {
	t.Helper()
	if !errors.Is(err, signalbox.ErrInvalid) {
		t.Fatalf("got %v, want ErrInvalid", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in the error: %v", part, err)
		}
	}
}

type nilKind struct{ kind string }

func (n *nilKind) Kind() string { return n.kind }

type badKind string

func (b badKind) Kind() string { return string(b) }

type unencodableArgs struct{ V any }

func (unencodableArgs) Kind() string { return "bad" }

type secretMarshaler struct{}

func (secretMarshaler) MarshalJSON() ([]byte, error) { return nil, errSecret }

var errSecret = errors.New("s3cret")

type panicMarshaler struct{}

func (panicMarshaler) MarshalJSON() ([]byte, error) { panic("s3cret") }

func TestWrongArgs(t *testing.T) {
	t.Parallel()
	s := offline(t)
	for name, tc := range map[string]struct {
		args signalbox.Args
		want []string
	}{
		"nil":             {nil, []string{"args"}},
		"nil pointer":     {(*nilKind)(nil), []string{"args", "nilKind"}},
		"kind empty":      {badKind(""), []string{"kind", "empty"}},
		"kind space":      {badKind("a b"), []string{"kind"}},
		"channel":         {unencodableArgs{make(chan int)}, []string{"payload", "chan int"}},
		"NaN":             {unencodableArgs{math.NaN()}, []string{"payload"}},
		"failing":         {unencodableArgs{secretMarshaler{}}, []string{"payload", "secretMarshaler"}},
		"panicking":       {unencodableArgs{panicMarshaler{}}, []string{"args", "panicked"}},
		"larger than 1 M": {unencodableArgs{strings.Repeat("s3cret", 200_000)}, []string{"payload", "bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := s.Enqueue(context.Background(), tc.args)
			wantInvalid(t, err, tc.want)
			results, err2 := s.EnqueueMany(context.Background(), []Item{{Args: tc.args}})
			wantInvalid(t, err2, tc.want)
			wantInvalid(t, results[0].Err, tc.want)
			err3 := s.Cron("e", "@daily", tc.args)
			wantInvalid(t, err3, tc.want)
			for _, err := range []error{err, err2, err3} {
				if strings.Contains(err.Error(), "s3cret") {
					t.Errorf("the payload is in the error: %.200v", err)
				}
			}
			if name == "failing" && !errors.Is(err, errSecret) {
				t.Error("the marshaler's own error is lost")
			}
		})
	}
}

func TestWrongCron(t *testing.T) {
	t.Parallel()
	s := offline(t)
	for _, spec := range []string{"", "* * *", "0 0 30 2 *", "@every 1ms", "CRON_TZ=No/Where 0 0 * * *"} {
		wantInvalid(t, s.Cron("e", spec, note{}), []string{"spec", `entry "e"`})
	}
	wantInvalid(t, s.Cron("a b", "nonsense", nil, Queue("{")), []string{"entry name", "spec", "args", "queue"})
	if err := s.Cron("e", "@daily", note{}, In(time.UTC)); err != nil {
		t.Error(err)
	}
	wantInvalid(t, s.Cron("e", "@hourly", note{}), []string{"already"})
}

func TestItemOptionsReplace(t *testing.T) {
	t.Parallel()
	base, err := defaults.with(inMany, none, []Option{Queue("a"), After(time.Hour), Header("k", "1"), Header("l", "1")})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(time.Minute)
	o, err := base.with(inManyItem, none, []Option{At(at), Header("k", "2")})
	if err != nil {
		t.Fatal(err)
	}
	if o.queue != "a" || o.when.After != 0 || !o.when.At.Equal(at) || o.headers["k"] != "2" || o.headers["l"] != "1" {
		t.Errorf("got %+v", o)
	}
	if base.headers["k"] != "1" {
		t.Error("an item changed the options of all")
	}
}

func none() []string { return nil }
