package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-go/signalbox"
)

// fail fails a record once more, and checks that it says nothing else than before.
func failed(t *testing.T, record []byte, a Attempt) []byte {
	t.Helper()
	next, err := FailAttempt(record, "boom", &a)
	if err != nil {
		t.Fatal(err)
	}
	var job signalbox.Job
	if err := Decode(next, &job); err != nil || job.Kind != "k" || string(job.Payload) != "p" || job.Attempt != a.Number+1 || job.LastError != "boom" {
		t.Fatalf("after attempt %d: %+v, %v", a.Number, job, err)
	}
	return next
}

// A record keeps the last ten attempts, oldest first, and doesn't grow with more of them.
func TestLastAttemptsAreKept(t *testing.T) {
	t.Parallel()
	record := AppendRecord(nil, &signalbox.Job{Kind: "k", Payload: []byte("p")})
	for n := 1; n <= 30; n++ {
		want := Attempt{
			Number: n, At: time.UnixMicro(int64(n)), Ran: time.Duration(n) * time.Second, Worker: "w", Error: fmt.Sprint("error ", n),
			TraceID: strings.Repeat("0a", 16), SpanID: strings.Repeat("b1", 8),
		}
		record = failed(t, record, want)
		kept := Attempts(record)
		if len(kept) != min(n, 10) || kept[len(kept)-1] != want || kept[0].Number != max(n-9, 1) {
			t.Fatalf("after attempt %d it keeps %+v", n, kept)
		}
	}
	if kept, err := Fail(record, 31, "boom"); err != nil || len(Attempts(kept)) != 10 {
		t.Errorf("a record that fails without an attempt keeps %v, %v", Attempts(kept), err)
	}
}

// Texts of an attempt are cut, and all attempts together are bounded: the oldest stacks go first, and no error goes for a stack.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	record := AppendRecord(nil, &signalbox.Job{Kind: "k", Payload: []byte("p")})
	bare := len(record)
	long := strings.Repeat("ä", 5000)
	for n := 1; n <= 12; n++ {
		record = failed(t, record, Attempt{Number: n, Worker: long, Error: long, Stack: long})
		kept := Attempts(record)
		last := kept[len(kept)-1]
		if len(last.Error) != MaxAttemptError || len(last.Stack) != MaxAttemptStack || len(last.Worker) != maxWorker || !strings.HasPrefix(long, last.Stack) {
			t.Fatalf("attempt %d has %d bytes of error, %d of stack, %d of worker", n, len(last.Error), len(last.Stack), len(last.Worker))
		}
		if len(record) > bare+MaxAttemptBytes+200 {
			t.Errorf("after attempt %d the record has grown by %d bytes", n, len(record)-bare)
		}
		for i := 1; i < len(kept); i++ {
			if kept[i-1].Stack != "" && kept[i].Stack == "" {
				t.Errorf("after attempt %d a stack is gone, and an older one is there", n)
			}
		}
		if len(kept) != min(n, MaxAttempts) || len(kept[0].Error) != MaxAttemptError {
			t.Errorf("after attempt %d there are %d, the first with %d bytes of error", n, len(kept), len(kept[0].Error))
		}
		if n > 2 && kept[len(kept)-2].Stack == "" {
			t.Errorf("after attempt %d only one stack is kept, though there is room for more", n)
		}
	}
}

// What another program wrote as attempts is passed over, and doesn't make a record larger than it may be.
func TestStrangeAttempts(t *testing.T) {
	t.Parallel()
	record := AppendRecord(nil, &signalbox.Job{Kind: "k", Payload: []byte("p")})
	for _, message := range []string{"\xff", string(bytes.Repeat([]byte{0x3a, 1, 'x'}, 10_000)), "\x08\x05\x7a\x01z", "\x0a\x01x"} {
		record = protowire.AppendTag(record, fieldAttempt, protowire.BytesType)
		record = protowire.AppendString(record, message)
	}
	record = protowire.AppendTag(record, fieldAttempt, protowire.VarintType)
	record = protowire.AppendVarint(record, 1)
	next := failed(t, record, Attempt{Number: 1, Error: "e", TraceID: "no hex", SpanID: "abcd" + strings.Repeat("0", 100)})
	kept := Attempts(next)
	if len(kept) == 0 || kept[len(kept)-1] != (Attempt{Number: 1, Error: "e"}) {
		t.Errorf("it keeps %+v", kept)
	}
	if len(next) > MaxAttemptBytes+200 {
		t.Errorf("it has %d bytes", len(next))
	}
	for n := range next { // cut anywhere, there is no panic
		Attempts(next[:n])
	}
}

// The attempt that completed a job is appended to its record, and the last one counts. All else of the record stays.
func TestSuccess(t *testing.T) {
	t.Parallel()
	record := AppendRecord(nil, &signalbox.Job{Kind: "k", Payload: []byte("x")})
	if got, result := Success(record); got != nil || result != nil {
		t.Error("a job that has not completed says that it has")
	}
	last := Attempt{Number: 2, At: time.UnixMicro(1_750_000_000_000_000), Ran: time.Second, Worker: "w2"}
	done := AppendSuccess(AppendSuccess(record, &Attempt{Number: 1, Worker: "w1"}, []byte("1")), &last, []byte("22"))
	if got, result := Success(done); got == nil || *got != last || string(result) != "22" {
		t.Errorf("got %+v and %q, want %+v", got, result, last)
	}
	if _, result := Success(AppendSuccess(done, &last, nil)); result != nil {
		t.Errorf("a run without a result has that of an earlier one, %q", result)
	}
	if _, result := Success(AppendSuccess(done, &last, []byte{})); result == nil || len(result) > 0 {
		t.Errorf("a result of no bytes is %q", result)
	}
	failed, err := FailAttempt(done, "boom", &Attempt{Number: 3, Error: "boom"})
	if err != nil {
		t.Fatal(err)
	}
	if got, result := Success(failed); got == nil || *got != last || string(result) != "22" {
		t.Errorf("after a failed attempt: %+v, %q", got, result)
	}
	if got := Attempts(failed); len(got) != 1 || got[0].Number != 3 {
		t.Errorf("its failed attempts are %+v", got)
	}
	var job signalbox.Job
	if err := Decode(done, &job); err != nil || job.Kind != "k" || string(job.Payload) != "x" {
		t.Errorf("%+v, %v", job, err)
	}
	for n := range done { // cut anywhere, there is no panic
		if got, _ := Success(done[:n]); n < len(record) && got != nil {
			t.Errorf("%d bytes of a record say that the job has completed", n)
		}
	}
}
