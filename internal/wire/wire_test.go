package wire

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-go/signalbox"
)

// random makes a job that a record can hold completely.
func random(r *rand.Rand) *signalbox.Job {
	text := func(n int) string {
		return strings.ToValidUTF8(string(randomBytes(r, r.IntN(n))), "ä")
	}
	job := &signalbox.Job{
		Kind:        "k" + text(20),
		Payload:     randomBytes(r, r.IntN(300)),
		Priority:    signalbox.Priority(r.IntN(3)),
		Attempt:     1 + r.IntN(100),
		MaxAttempts: 1 + r.IntN(100),
		Crashes:     r.IntN(256),
		Timeout:     time.Duration(r.Int64N(1e12)) * time.Microsecond,
		EnqueuedAt:  time.UnixMicro(1 + r.Int64N(1<<53)),
		ScheduledAt: time.UnixMicro(1 + r.Int64N(1<<53)),
		LastError:   text(50),
		Retain:      []time.Duration{0, signalbox.RetainNone, time.Duration(1+r.Int64N(1e12)) * time.Microsecond, MaxRetain}[r.IntN(4)],
	}
	if r.IntN(2) == 0 {
		job.Group, job.Serial = "g"+strings.Repeat("a", r.IntN(200)), r.IntN(2) == 0
	}
	if len(job.Payload) == 0 {
		job.Payload = nil
	}
	if r.IntN(2) == 0 {
		job.Effect = "e" + text(20)
	}
	if r.IntN(2) == 0 {
		job.Incarnation = r.Uint64()
	}
	for range r.IntN(4) {
		if job.Headers == nil {
			job.Headers = map[string]string{}
		}
		job.Headers[text(10)] = text(10)
	}
	return job
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	check := func(seed uint64) bool {
		want := random(rand.New(rand.NewPCG(seed, 1)))
		record := AppendRecord(nil, want)
		var got signalbox.Job
		if err := Decode(record, &got); err != nil {
			t.Logf("%+v: %v", want, err)
			return false
		}
		if !reflect.DeepEqual(&got, want) {
			t.Logf("got %+v, want %+v", got, *want)
			return false
		}
		return bytes.Equal(AppendRecord(nil, &got), record)
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

// Decode replaces the whole job, except the fields that are not part of a record.
func TestDecodeReplaces(t *testing.T) {
	t.Parallel()
	job := signalbox.Job{
		ID: "id", Queue: "q", Token: 7, ClaimedAt: time.Unix(1, 0),
		Kind: "old", Payload: []byte("old"), Headers: map[string]string{"old": "1"}, LastError: "old", Timeout: 1, Attempt: 9, Effect: "old", Incarnation: 9,
	}
	if err := Decode(AppendRecord(nil, &signalbox.Job{Kind: "new"}), &job); err != nil {
		t.Fatal(err)
	}
	want := signalbox.Job{
		ID: "id", Queue: "q", Token: 7, ClaimedAt: time.Unix(1, 0),
		Kind: "new", Attempt: 1, MaxAttempts: signalbox.DefaultMaxAttempts,
	}
	if !reflect.DeepEqual(job, want) {
		t.Errorf("got %+v, want %+v", job, want)
	}
}

// A decoded job shares no memory with the record.
func TestDecodeCopies(t *testing.T) {
	t.Parallel()
	record := AppendRecord(nil, &signalbox.Job{Kind: "kind", Payload: []byte("payload"), Headers: map[string]string{"k": "v"}})
	var job signalbox.Job
	if err := Decode(record, &job); err != nil {
		t.Fatal(err)
	}
	clear(record)
	if job.Kind != "kind" || string(job.Payload) != "payload" || job.Headers["k"] != "v" {
		t.Errorf("it changed with the record: %+v", job)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	record := AppendRecord(nil, &signalbox.Job{Kind: "k", Priority: signalbox.PriorityHigh, Crashes: 3})
	for v := range 256 {
		record[0] = byte(v)
		var want error
		switch {
		case v == 1 || v == 2:
		case v > 2 && v < 0x20:
			want = ErrVersion
		default:
			want = ErrCorrupt
		}
		var job signalbox.Job
		if err := Decode(record, &job); !errors.Is(err, want) {
			t.Errorf("version byte 0x%02x: %v, want %v", v, err, want)
		}
		if want == ErrVersion && (job.Priority != signalbox.PriorityHigh || job.Crashes != 3) {
			t.Errorf("version byte 0x%02x: the header says %v and %d crashes", v, job.Priority, job.Crashes)
		}
	}
	for _, record := range []string{"\x03", "\x03x", "\x1f" + strings.Repeat("\xff", 40)} {
		if err := Decode([]byte(record), &signalbox.Job{}); !errors.Is(err, ErrVersion) {
			t.Errorf("%q: %v", record, err)
		}
	}
}

func TestCorrupt(t *testing.T) {
	t.Parallel()
	good := AppendRecord(nil, &signalbox.Job{Kind: "kind", Payload: []byte("payload"), Headers: map[string]string{"key": "value"}, LastError: "e", Attempt: 300})
	for _, record := range []string{
		"", "{}", "garbage that is long enough to be a record", "\x00" + string(good[1:]),
		"\x01", "\x013" + string(good[2:]), string(good[:headerLen-1]), string(good[:headerLen]),
		string(good[:headerLen]) + "\x0a\xff\xff\xff\xff\x0f",       // a length beyond the end of the record
		string(good[:headerLen]) + "\x0a\x00",                       // an empty kind
		string(good[:headerLen]) + "\x00\x01",                       // field 0
		string(good) + "\x1a\x02\x0a\x09",                           // a header that ends beyond its field
		string(good) + "\x20",                                       // a missing number
		string(good) + "\x20" + strings.Repeat("\xff", 10) + "\x01", // a number of 71 bits
		string(good) + "\x7b",                                       // a group without an end
	} {
		if err := Decode([]byte(record), &signalbox.Job{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: %v", record, err)
		}
	}
	// A record that is cut anywhere is corrupt or a shorter record. It causes no panic.
	for n := range good {
		if err := Decode(good[:n], &signalbox.Job{}); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
}

// Fields of a later release are ignored, even if they have a known number with another type.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	b := AppendRecord(nil, &signalbox.Job{Kind: "k", Headers: map[string]string{"h": "v"}})
	b = protowire.AppendTag(b, 8, protowire.VarintType)
	b = protowire.AppendVarint(b, math.MaxUint64)
	b = protowire.AppendTag(b, 2000, protowire.BytesType)
	b = protowire.AppendString(b, "later")
	b = protowire.AppendTag(b, 9, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, 1)
	b = protowire.AppendTag(b, 10, protowire.StartGroupType)
	b = protowire.AppendTag(b, 1, protowire.Fixed32Type)
	b = protowire.AppendFixed32(b, 1)
	b = protowire.AppendTag(b, 10, protowire.EndGroupType)
	b = protowire.AppendTag(b, fieldKind, protowire.VarintType)
	b = protowire.AppendVarint(b, 5)
	b = protowire.AppendTag(b, fieldFailed, protowire.BytesType)
	b = protowire.AppendString(b, "x")
	entry := []byte("\x0a\x01g\x12\x01w\x18\x05\x22\x01z")
	b = protowire.AppendTag(b, fieldHeader, protowire.BytesType)
	b = protowire.AppendBytes(b, entry)
	var job signalbox.Job
	if err := Decode(b, &job); err != nil {
		t.Fatal(err)
	}
	if job.Kind != "k" || job.Attempt != 1 || job.Headers["h"] != "v" || job.Headers["g"] != "w" || len(job.Headers) != 2 {
		t.Errorf("got %+v", job)
	}

	// The unknown fields survive a failed attempt.
	failed, err := Fail(b, 3, "boom")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(failed, []byte("later")) {
		t.Error("a field of a later release is lost")
	}
	if err := Decode(failed, &job); err != nil || job.Attempt != 4 || job.LastError != "boom" {
		t.Errorf("after a failed attempt: %+v, %v", job, err)
	}
}

// A number that a job can't hold becomes the largest that it can.
func TestHugeNumbers(t *testing.T) {
	t.Parallel()
	record := bytes.Repeat([]byte{0xff}, headerLen)
	record[0], record[1], record[flagsAt] = version, '1', 0
	record = AppendEnvelope(record, &signalbox.Job{Kind: "k"})
	for _, field := range []protowire.Number{fieldFailed, fieldMaxAttempts, fieldTimeout} {
		record = appendUint(record, field, math.MaxUint64)
	}
	var job signalbox.Job
	if err := Decode(record, &job); err != nil {
		t.Fatal(err)
	}
	if job.Attempt != math.MaxInt32 || job.MaxAttempts != math.MaxInt32 || job.Timeout <= 0 || job.Crashes != 255 ||
		job.EnqueuedAt.UnixMicro() != 1<<53 {
		t.Errorf("got %+v", job)
	}
	record = appendUint(AppendRecord(nil, &signalbox.Job{Kind: "k"}), fieldMaxAttempts, 0)
	if err := Decode(record, &job); err != nil || job.MaxAttempts != signalbox.DefaultMaxAttempts {
		t.Errorf("0 attempts at most: %d, %v; want the default", job.MaxAttempts, err)
	}
}

func TestFail(t *testing.T) {
	t.Parallel()
	record := AppendRecord(nil, &signalbox.Job{Kind: "k", Payload: []byte("p"), Attempt: 2, LastError: "old", Crashes: 1})
	for i, message := range []string{"first", "", "not \xff UTF-8"} {
		next, err := Fail(record, i+5, message)
		if err != nil {
			t.Fatal(err)
		}
		var job signalbox.Job
		if err := Decode(next, &job); err != nil {
			t.Fatal(err)
		}
		want := strings.ToValidUTF8(message, "\uFFFD")
		if job.Attempt != i+6 || job.LastError != want || job.Crashes != 1 || string(job.Payload) != "p" {
			t.Errorf("got %+v, want attempt %d and %q", job, i+6, want)
		}
		if grown := len(next) - len(record); grown > len(want)+2 {
			t.Errorf("it grows by %d bytes", grown)
		}
		record = next
	}
	for _, bad := range []string{"", "garbage that is long enough", "\x03" + string(record[1:]), string(record) + "\xff"} {
		if _, err := Fail([]byte(bad), 1, "e"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A record keeps only its last error. So it does not grow with the number of attempts.
func TestFailReplacesTheError(t *testing.T) {
	t.Parallel()
	record := AppendRecord(nil, &signalbox.Job{Kind: "k"})
	size := 0
	for i := range 20 {
		next, err := Fail(record, 10+i, strings.Repeat("e", 100))
		if err != nil {
			t.Fatal(err)
		}
		if record = next; i == 0 {
			size = len(record)
		}
	}
	if len(record) != size {
		t.Errorf("after 20 attempts it has %d bytes, after the first it had %d", len(record), size)
	}
}

// Decode returns a job or one of the two errors, for any bytes. The job can be encoded again, to
// a record that decodes to the same job.
func FuzzDecode(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.record)
	}
	f.Add([]byte("\x02"))
	f.Add([]byte("{\"kind\":\"k\"}"))
	f.Fuzz(func(t *testing.T, record []byte) {
		var job signalbox.Job
		if err := Decode(record, &job); err != nil {
			if !errors.Is(err, ErrVersion) && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		once := AppendRecord(nil, &job)
		var again signalbox.Job
		if err := Decode(once, &again); err != nil {
			t.Fatalf("%x: %v", once, err)
		}
		if twice := AppendRecord(nil, &again); !bytes.Equal(once, twice) {
			t.Errorf("%x\n%x", once, twice)
		}
		attempt := Attempt{Number: 1, At: time.UnixMicro(1), Ran: time.Second, Worker: "w", Error: "e", Stack: "s", TraceID: strings.Repeat("1f", 16)}
		failed, err := FailAttempt(record, "e", &attempt)
		if err != nil {
			t.Fatalf("it decodes, but can't fail: %v", err)
		}
		kept := Attempts(failed)
		if len(kept) == 0 || len(kept) > MaxAttempts || kept[len(kept)-1] != attempt {
			t.Errorf("after a failed attempt it keeps %+v", kept)
		}
	})
}

var benchJob = signalbox.Job{
	Kind: "email.welcome", Payload: bytes.Repeat([]byte("x"), 100), EnqueuedAt: time.Unix(1e9, 0), ScheduledAt: time.Unix(1e9, 0),
	Headers: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
}

func BenchmarkEncode(b *testing.B) {
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf = AppendRecord(buf[:0], &benchJob)
	}
	b.ReportMetric(float64(len(buf)), "bytes")
}

func BenchmarkDecode(b *testing.B) {
	b.ReportAllocs()
	record := AppendRecord(nil, &benchJob)
	for b.Loop() {
		var job signalbox.Job
		if err := Decode(record, &job); err != nil {
			b.Fatal(err)
		}
	}
}

// After an error the job has the fields of the header, and nothing of the envelope.
func TestDecodeKeepsNoHalf(t *testing.T) {
	t.Parallel()
	whole := AppendRecord(nil, &signalbox.Job{
		Kind: "kind", Payload: []byte("{}"), Headers: map[string]string{"a": "b"}, Attempt: 3, MaxAttempts: 7, EnqueuedAt: time.UnixMicro(1),
	})
	spoilt := 0
	for n := headerLen; n < len(whole); n++ {
		job := signalbox.Job{ID: "id", Queue: "queue", Token: 7}
		if err := Decode(append(whole[:n:n], 0xff), &job); err == nil {
			continue // the rest is a valid record
		}
		if job.Kind != "" || job.Payload != nil || job.Headers != nil || job.Attempt != 0 || job.MaxAttempts != 0 {
			t.Errorf("%d bytes: %+v", n, job)
		}
		if job.ID != "id" || !job.EnqueuedAt.Equal(time.UnixMicro(1)) {
			t.Errorf("%d bytes: the header is not read: %+v", n, job)
		}
		spoilt++
	}
	if spoilt < (len(whole)-headerLen)/2 {
		t.Errorf("only %d of %d are spoilt", spoilt, len(whole)-headerLen)
	}
}
