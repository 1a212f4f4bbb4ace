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

// offline returns a scheduler whose client can't reach Redis.
func offline(t *testing.T) *Scheduler {
	t.Helper()
	return offlineWith(t, Config{Propagator: ownHeader{}})
}

func offlineWith(t *testing.T, config Config) *Scheduler {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	s, err := New(rdb, config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ownHeader is a propagator with an additional header.
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

// A Ring would lose jobs. In an AutoPipeliner calls would be late or get no answer.
func TestNewRefusesClients(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "redis-1:1"}})
	defer ring.Close()
	replicas := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"redis-1:1"}, RouteByLatency: true})
	defer replicas.Close()
	for name, rdb := range map[string]redis.UniversalClient{"Ring": ring, "AutoPipeliner": &redis.AutoPipeliner{}, "replicas": replicas} {
		_, err := New(rdb, Config{EnqueueTimeout: -1})
		if !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "EnqueueTimeout") {
			t.Errorf("New with a %s: %v; want an error that names it, and the other mistake", name, err)
		}
	}
}

func TestWrongOptions(t *testing.T) {
	t.Parallel()
	s := offline(t)
	for name, tc := range map[string]struct {
		opts []EnqueueOption
		want []string // parts of the error
	}{
		"queue empty":          {[]EnqueueOption{Queue("")}, []string{"queue", "empty"}},
		"queue braces":         {[]EnqueueOption{Queue("a{b}")}, []string{"queue", `'{'`}},
		"queue space":          {[]EnqueueOption{Queue("a b")}, []string{"queue", `' '`}},
		"queue NUL":            {[]EnqueueOption{Queue("a\x00b")}, []string{"queue", `'\x00'`}},
		"queue long":           {[]EnqueueOption{Queue(strings.Repeat("q", 201))}, []string{"queue", "201 bytes"}},
		"queue not ASCII":      {[]EnqueueOption{Queue("käse")}, []string{"queue"}},
		"ID empty":             {[]EnqueueOption{ID("")}, []string{"job ID", "empty"}},
		"ID space":             {[]EnqueueOption{ID("a b")}, []string{"job ID"}},
		"At zero":              {[]EnqueueOption{At(time.Time{})}, []string{"At"}},
		"At late":              {[]EnqueueOption{At(time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC))}, []string{"At", "2255"}},
		"After long":           {[]EnqueueOption{After(math.MaxInt64)}, []string{"After"}},
		"At and After":         {[]EnqueueOption{At(time.Now()), After(time.Hour)}, []string{"At", "After"}},
		"MaxAttempts 0":        {[]EnqueueOption{MaxAttempts(0)}, []string{"MaxAttempts", "0"}},
		"MaxAttempts big":      {[]EnqueueOption{MaxAttempts(math.MaxInt)}, []string{"MaxAttempts"}},
		"Priority":             {[]EnqueueOption{Priority(9)}, []string{"Priority(9)"}},
		"Timeout":              {[]EnqueueOption{Timeout(-1)}, []string{"Timeout", "-1ns"}},
		"Retain short":         {[]EnqueueOption{Retain(999)}, []string{"Retain", "999ns", "RetainNone"}},
		"Retain long":          {[]EnqueueOption{Retain(10_000*24*time.Hour + 1)}, []string{"Retain", "240000h"}},
		"ExpireAfter short":    {[]EnqueueOption{ExpireAfter(999)}, []string{"ExpireAfter", "999ns"}},
		"ExpireAfter long":     {[]EnqueueOption{ExpireAfter(10_000*24*time.Hour + 1)}, []string{"ExpireAfter", "240000h"}},
		"ExpireAfter negative": {[]EnqueueOption{ExpireAfter(-time.Hour)}, []string{"ExpireAfter", "-1h0m0s"}},
		"Deadline zero":        {[]EnqueueOption{Deadline(time.Time{})}, []string{"Deadline", "the zero time"}},
		"Deadline early":       {[]EnqueueOption{Deadline(time.Unix(0, 0))}, []string{"Deadline", "after 1970 and before 2255"}},
		"Deadline late":        {[]EnqueueOption{Deadline(latest.Add(time.Second))}, []string{"Deadline", "after 1970 and before 2255"}},
		"Deadline and expiry":  {[]EnqueueOption{ExpireAfter(time.Hour), Deadline(time.Now())}, []string{"Deadline", "ExpireAfter", "want one of them"}},
		"Retain negative":      {[]EnqueueOption{Retain(-time.Hour)}, []string{"Retain", "-1h0m0s", "RetainNone"}},
		"Header no name":       {[]EnqueueOption{Header("", "v")}, []string{"Header"}},
		"Header name":          {[]EnqueueOption{Header("\xff", "v")}, []string{"Header", "UTF-8"}},
		"Header value":         {[]EnqueueOption{Header("k", "\xff")}, []string{"Header", `"k"`, "UTF-8"}},
		"Header size":          {[]EnqueueOption{Header("k", strings.Repeat("v", 40<<10)), Header("l", strings.Repeat("v", 40<<10))}, []string{"Header", "81922"}},
		"Header reserved":      {[]EnqueueOption{Headers(map[string]string{"TraceParent": "x"})}, []string{"Header", "reserved"}},
		"Header baggage":       {[]EnqueueOption{Header("baggage", "x")}, []string{"Header", "reserved"}},
		"Header since":         {[]EnqueueOption{Header("signalbox-trace-since", "1")}, []string{"Header", "reserved"}},
		"Header mode":          {[]EnqueueOption{Header("Signalbox-Trace-Mode", "link")}, []string{"Header", "reserved"}},
		"TraceMode":            {[]EnqueueOption{TraceMode(4)}, []string{"TraceMode", "4"}},
		"Header own":           {[]EnqueueOption{Header("x-own", "x")}, []string{"Header", "reserved"}},
		"list, nil option":     {[]EnqueueOption{JobOptions{Queue("q"), nil}}, []string{"JobOptions", "number 2"}},
		"list, in a list":      {[]EnqueueOption{JobOptions{JobOptions{MaxAttempts(0)}}}, []string{"MaxAttempts", "0"}},
		"list, both groups":    {[]EnqueueOption{JobOptions{Group("a")}, Serial("b")}, []string{"Group", "Serial"}},
		"nil option":           {[]EnqueueOption{nil}, []string{"option", "number 1"}},
		"all at once": {
			[]EnqueueOption{Queue("{"), ID(" "), MaxAttempts(-1), Priority(7), Timeout(-1), Header("", ""), nil},
			[]string{"queue", "job ID", "MaxAttempts", "Priority", "Timeout", "Header", "number 7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := s.Enqueue(context.Background(), note{}, tc.opts...)
			wantInvalid(t, err, tc.want)
			if res.said() != (Result{}) {
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

// A mistake in an option for all jobs is an error of each job.
func TestWrongOptionsOfAll(t *testing.T) {
	t.Parallel()
	s := offline(t)
	results, err := s.EnqueueMany(context.Background(), make([]Item, 3), MaxAttempts(0), nil)
	wantInvalid(t, err, []string{"MaxAttempts", "number 2", "none of 3"})
	if len(results) != 3 || results[2].Err == nil {
		t.Errorf("results: %+v", results)
	}
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

var errNoRecipient = errors.New("no recipient")

type invalidArgs struct{}

func (invalidArgs) Kind() string    { return "invalid" }
func (invalidArgs) Validate() error { return errNoRecipient }

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
		"not valid":       {invalidArgs{}, []string{"args of kind invalid", "no recipient"}},
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
			if name == "not valid" && !errors.Is(err, errNoRecipient) {
				t.Error("the error of Validate is lost")
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
	wantInvalid(t, s.Cron("e", "@daily", note{}, In(nil), nil), []string{"In", "nil", "number 2"})
	if err := s.Cron("e", "@daily", note{}, In(time.UTC)); err != nil {
		t.Error(err)
	}
	wantInvalid(t, s.Cron("e", "@hourly", note{}), []string{"already"})
}

func TestItemOptionsReplace(t *testing.T) {
	t.Parallel()
	base, err := defaults.with(none, []EnqueueOption{Queue("a"), After(time.Hour), Header("k", "1"), Header("l", "1")})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(time.Minute)
	o, err := base.with(none, []EnqueueOption{At(at), Header("k", "2")})
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

// YieldOnRetry is for serial groups. Given without one it would have no effect, so it is an error, unless it is the default of a kind.
func TestYieldOnRetryNeedsSerial(t *testing.T) {
	t.Parallel()
	serial := []EnqueueOption{Serial("a")}
	for name, c := range map[string]struct {
		base, opts []EnqueueOption
		wrong      bool
	}{
		"alone":                      {nil, []EnqueueOption{YieldOnRetry()}, true},
		"with a group":               {nil, []EnqueueOption{Group("a"), YieldOnRetry()}, true},
		"with a serial group":        {nil, []EnqueueOption{YieldOnRetry(), Serial("a")}, false},
		"the serial group is of all": {serial, []EnqueueOption{YieldOnRetry()}, false},
		"another group than of all":  {serial, []EnqueueOption{Group("b"), YieldOnRetry()}, true},
		"of all, not of this one":    {[]EnqueueOption{Serial("a"), YieldOnRetry()}, []EnqueueOption{Group("b")}, false},
	} {
		base, err := defaults.with(none, c.base)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := base.with(none, c.opts); errors.Is(err, signalbox.ErrInvalid) != c.wrong || c.wrong && !strings.Contains(err.Error(), "YieldOnRetry: it is given without Serial") {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := make([]CronOption, 0, 1)
	if _, err := ofEntry(kindDefaults{}, none, append(e, YieldOnRetry())); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("of a cron entry: %v", err)
	}
	o, err := resolve(kindDefaults{Defaults: signalbox.Defaults{YieldOnRetry: true}}, none, nil)
	if err != nil || o.job("1", "k", nil).YieldOnRetry {
		t.Errorf("as a default: %v", err)
	}
}

func none() []string { return nil }
