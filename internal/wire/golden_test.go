package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// A vector is a record and its description.
type vector struct {
	name   string
	record []byte
	job    signalbox.Job
	extras bool
	kept   []Attempt
	// success and result are what Success returns.
	success *Attempt
	result  []byte
	// survived is what SurvivedOf returns.
	survived int
	links    string // what LinksOf returns
}

// described is a job in the form of golden.txt. Times are microseconds since the Unix epoch.
type described struct {
	Kind        string            `json:"kind"`
	Payload     string            `json:"payload,omitempty"`
	PayloadHex  string            `json:"payload_hex,omitempty"`
	Encoding    string            `json:"encoding,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Priority    string            `json:"priority"`
	Crashes     int               `json:"crashes,omitempty"`
	Survived    int               `json:"survived,omitempty"`
	Extras      bool              `json:"extras,omitempty"` // that AppendRecord doesn't write
	Links       string            `json:"links,omitempty"`
	Enqueued    int64             `json:"enqueued_us"`
	Due         int64             `json:"due_us"`
	Failed      int               `json:"failed,omitempty"`
	MaxAttempts int               `json:"max_attempts"`
	Timeout     int64             `json:"timeout_us,omitempty"`
	Retain      int64             `json:"retain_us,omitempty"` // -1: it isn't kept at all
	Expire      int64             `json:"expire_us,omitempty"`
	Deadline    int64             `json:"deadline_us,omitempty"`
	Group       string            `json:"group,omitempty"`
	Serial      bool              `json:"serial,omitempty"`
	Yields      bool              `json:"yield_on_retry,omitempty"`
	LastError   string            `json:"last_error,omitempty"`
	Effect      string            `json:"effect_key,omitempty"`
	Incarnation string            `json:"incarnation,omitempty"`
	Finished    bool              `json:"finished,omitempty"`
	Born        int64             `json:"born_us,omitempty"`
	Saved       string            `json:"saved_hex,omitempty"`
	Attempts    []tried           `json:"attempts,omitempty"`
	Success     *tried            `json:"success,omitempty"`
	Result      string            `json:"result_hex,omitempty"` // of Success
}

// tried is an attempt in the form of golden.txt.
type tried struct {
	Number  int    `json:"number"`
	At      int64  `json:"at_us"`
	Ran     int64  `json:"ran_us"`
	Worker  string `json:"worker"`
	Error   string `json:"error,omitempty"`
	Stack   string `json:"stack,omitempty"`
	TraceID string `json:"trace_id,omitempty"`
	SpanID  string `json:"span_id,omitempty"`
}

func (a *tried) attempt() Attempt {
	return Attempt{
		Number: a.Number, At: fromMicros(uint64(a.At)), Ran: time.Duration(a.Ran) * time.Microsecond, Worker: a.Worker, Error: a.Error,
		Stack: a.Stack, TraceID: a.TraceID, SpanID: a.SpanID,
	}
}

// attempts are those that the record keeps.
func (d described) attempts() (all []Attempt) {
	for i := range d.Attempts {
		all = append(all, d.Attempts[i].attempt())
	}
	return all
}

func (d described) job(t testing.TB) signalbox.Job {
	t.Helper()
	payload := []byte(d.Payload)
	if d.PayloadHex != "" {
		var err error
		if payload, err = hex.DecodeString(d.PayloadHex); err != nil {
			t.Fatal(err)
		}
	}
	if len(payload) == 0 {
		payload = nil
	}
	var incarnation uint64
	if d.Incarnation != "" {
		var err error
		if incarnation, err = strconv.ParseUint(d.Incarnation, 16, 64); err != nil {
			t.Fatal(err)
		}
	}
	saved, err := hex.DecodeString(d.Saved)
	if err != nil {
		t.Fatal(err)
	}
	if len(saved) == 0 {
		saved = nil
	}
	retain := time.Duration(d.Retain) * time.Microsecond
	if d.Retain < 0 {
		retain = signalbox.RetainNone
	}
	priorities := map[string]signalbox.Priority{
		"high": signalbox.PriorityHigh, "normal": signalbox.PriorityNormal, "low": signalbox.PriorityLow,
	}
	return signalbox.Job{
		Kind: d.Kind, Payload: payload, Encoding: d.Encoding, Headers: d.Headers, Priority: priorities[d.Priority], Crashes: d.Crashes,
		EnqueuedAt: fromMicros(uint64(d.Enqueued)), ScheduledAt: fromMicros(uint64(d.Due)),
		Attempt: d.Failed + 1, MaxAttempts: d.MaxAttempts, Timeout: time.Duration(d.Timeout) * time.Microsecond, ExpireAfter: time.Duration(d.Expire) * time.Microsecond, Deadline: fromMicros(uint64(d.Deadline)), LastError: d.LastError,
		Effect: d.Effect, Born: fromMicros(uint64(d.Born)), Incarnation: incarnation, Finished: d.Finished, Saved: saved, Retain: retain, Group: d.Group, Serial: d.Serial, YieldOnRetry: d.Yields,
	}
}

// vectors reads golden.txt. Each vector has three lines: a comment, the record in hex and its
// description.
func vectors(t testing.TB) (all []vector) {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	name, record := "", []byte(nil)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case strings.HasPrefix(line, "# "):
			name = line[2:]
		case strings.HasPrefix(line, "{"):
			var d described
			if err := json.Unmarshal([]byte(line), &d); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			v := vector{name: name, record: record, job: d.job(t), extras: d.Extras, kept: d.attempts(), survived: d.Survived, links: d.Links}
			if d.Success != nil {
				success := d.Success.attempt()
				v.success = &success
				if v.result, err = hex.DecodeString(d.Result); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			all = append(all, v)
		default:
			if record, err = hex.DecodeString(strings.ReplaceAll(line, " ", "")); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	return all
}

// testdata/golden.txt defines the format. A record that was written must stay readable. So
// lines are added to that file, and never changed.
func TestGolden(t *testing.T) {
	t.Parallel()
	all := vectors(t)
	if len(all) < 10 {
		t.Fatalf("only %d vectors", len(all))
	}
	for _, v := range all {
		var got signalbox.Job
		if err := Decode(v.record, &got); err != nil {
			t.Errorf("%s: %v", v.name, err)
			continue
		}
		if !reflect.DeepEqual(got, v.job) {
			t.Errorf("%s: got %+v, want %+v", v.name, got, v.job)
		}
		if kept := Attempts(v.record); !reflect.DeepEqual(kept, v.kept) {
			t.Errorf("%s: it keeps %+v, want %+v", v.name, kept, v.kept)
		}
		if success, result := Success(v.record); !reflect.DeepEqual(success, v.success) || !bytes.Equal(result, v.result) {
			t.Errorf("%s: it was completed by %+v with the result %q, want %+v and %q", v.name, success, result, v.success, v.result)
		}
		if n := SurvivedOf(v.record); n != v.survived {
			t.Errorf("%s: it has survived %d deliveries, want %d", v.name, n, v.survived)
		}
		if links := LinksOf(v.record); links != v.links {
			t.Errorf("%s: it has the links %q, want %q", v.name, links, v.links)
		}
		if again := v.encode(t); !bytes.Equal(again, v.record) && !v.extras {
			t.Errorf("%s:\n  encodes to %x\n  want       %x", v.name, again, v.record)
		}
	}
}

// encode makes the record: that of the new job, and then of its attempts, one after the other.
func (v *vector) encode(t *testing.T) []byte {
	t.Helper()
	job := v.job
	if v.success != nil {
		return AppendSuccess(AppendRecord(nil, &job), v.success, v.result)
	}
	if len(v.kept) == 0 {
		return AppendRecord(nil, &job)
	}
	job.Attempt, job.LastError = 1, ""
	record := AppendRecord(nil, &job)
	for _, a := range v.kept {
		var err error
		if record, err = FailAttempt(record, a.Error, &a); err != nil {
			t.Fatal(err)
		}
	}
	return record
}
