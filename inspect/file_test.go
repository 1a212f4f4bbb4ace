package inspect_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// exported returns the file of a queue.
func (s *stage) exported() string {
	s.t.Helper()
	var b bytes.Buffer
	_, err := s.ins.Export(s.t.Context(), s.Name(), &b, nil)
	s.must(err)
	return b.String()
}

// imports reads a file into the queue.
func (s *stage) imports(file string, o inspect.Importing) inspect.Imported {
	s.t.Helper()
	done, err := s.ins.Import(s.t.Context(), s.Name(), strings.NewReader(file), o)
	s.must(err)
	return done
}

// A queue that is exported and imported has the same jobs, in the same states, whatever they say.
func TestExportAndImport(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		s.states()
		s.put(signalbox.Job{
			ID: "full", Kind: "charge", Payload: []byte(`{"a":"<&> \u2028 ü","b":[1,2.50,null]}`), Headers: map[string]string{"tenant": "acme", "empty": ""},
			Priority: signalbox.PriorityHigh, MaxAttempts: 3, Timeout: 1500 * time.Microsecond, Incarnation: 7, Saved: []byte("\x0a\x013"),
		}, store.When{})
		s.put(signalbox.Job{ID: "spaced", Payload: []byte(`{ "a": 1 }`), Effect: "order-17"}, store.When{})
		s.put(signalbox.Job{ID: "null", Payload: []byte(`null`)}, store.When{})
		s.put(signalbox.Job{ID: "bytes", Payload: []byte("\x00\xff"), Encoding: "zstd+json"}, store.When{})
		s.must(s.rdb.HSet(t.Context(), s.keys+"jobs", "dead2", "no record").Err())
		unknown := s.rdb.HGet(t.Context(), s.keys+"jobs", "in2h").Val() + "\xaa\x09\x03new" // a field of a later release
		s.must(s.rdb.HSet(t.Context(), s.keys+"jobs", "in2h", unknown).Err())
		s.must(s.rdb.HSet(t.Context(), s.keys+"stats", "dead_bytes", len("no record")+len(s.rdb.HGet(t.Context(), s.keys+"jobs", "dead1").Val())).Err())
		_, err := s.ins.Pause(t.Context(), s.Name())
		s.must(err)
		s.must(s.ins.SetSlots(t.Context(), s.Name(), 7))
		s.must(s.ins.SetRetention(t.Context(), s.Name(), signalbox.Retention{Jobs: 17, Bytes: 1 << 30, Age: time.Hour}))
		to := s.beside()
		s.must(s.ins.SetCopyDead(t.Context(), s.Name(), to.Name()))
		if _, err := s.ins.Import(t.Context(), to.Name(), strings.NewReader(s.exported()), inspect.Importing{Settings: true}); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), to.Name()) {
			t.Errorf("into the queue that gets the copies: %v", err)
		}
		s.must(s.ins.SetCopyDead(t.Context(), s.Name(), "graves"))

		file := s.exported()
		if n := strings.Count(file, "\n"); n != 17+2 || strings.Count(file, `"was_running":true`) != 2 {
			t.Fatalf("%d lines:\n%s", n, file)
		}
		if done := to.imports(file, inspect.Importing{DryRun: true, Settings: true}); done != (inspect.Imported{Jobs: 17, Done: 17}) {
			t.Errorf("dry: %+v", done)
		}
		if q, err := s.ins.Queue(t.Context(), to.Name()); err != nil || q.Ready+q.Scheduled+q.Dead+q.Cancelled != 0 || q.Paused {
			t.Errorf("a dry run leaves %+v, %v", q, err)
		}
		if done := to.imports(file, inspect.Importing{Settings: true}); done != (inspect.Imported{Jobs: 17, Done: 17}) {
			t.Errorf("import: %+v", done)
		}
		q, err := s.ins.Queue(t.Context(), to.Name())
		if want := (signalbox.Retention{Jobs: 17, Bytes: 1 << 30, Age: time.Hour}); err != nil || !q.Paused || q.Slots != 7 || q.Retention != want || q.CopyDead != "graves" {
			t.Errorf("settings: %+v, %v", q, err)
		}
		if done := to.imports(file, inspect.Importing{}); done != (inspect.Imported{Jobs: 17, There: 17}) {
			t.Errorf("import again: %+v", done)
		}
		for _, f := range []signalbox.State{signalbox.StateScheduled, signalbox.StateReady, signalbox.StateRunning, signalbox.StateDead, signalbox.StateCancelled} {
			for _, want := range s.list(inspect.Filter{State: f}) {
				got, err := s.ins.Job(t.Context(), to.Name(), want.ID)
				s.must(err)
				if f == signalbox.StateReady || f == signalbox.StateRunning {
					if got.State != signalbox.StateScheduled || !strings.HasPrefix(got.Waits, "its time has come") {
						t.Errorf("%s is %s, waits %q", got.ID, got.State, got.Waits)
					}
					got.State = want.State
				}
				want.Cursor, want.Queue, want.Waits, got.Waits = "", to.Name(), "", ""
				want.Worker, want.Token, want.Since, want.RunTraceID, want.RunSpanID = "", 0, time.Time{}, "", ""
				if want.ID == "dead2" {
					if got.Err == nil || got.State != signalbox.StateDead || !got.EndedAt.Equal(want.EndedAt) {
						t.Errorf("what can't be read: %+v", got)
					}
					continue
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("it is  %+v\nit was %+v", got, want)
				}
			}
		}
		if record := s.rdb.HGet(t.Context(), to.keys+"jobs", "in2h").Val(); !strings.Contains(record, "\xaa\x09\x03new") {
			t.Error("a field of a later release is lost")
		}
		// Workers take what was ready in the order of its times.
		_, err = s.ins.Resume(t.Context(), to.Name())
		s.must(err)
		to.claim(0) // promotes them
		order := append(s.list(inspect.Filter{State: signalbox.StateReady}), s.list(inspect.Filter{State: signalbox.StateRunning})...)
		rank := map[signalbox.Priority]int{signalbox.PriorityHigh: 0, signalbox.PriorityNormal: 1, signalbox.PriorityLow: 2}
		slices.SortFunc(order, func(a, b inspect.Job) int {
			return cmp.Or(cmp.Compare(rank[a.Priority], rank[b.Priority]), a.DueAt.Compare(b.DueAt), cmp.Compare(a.ID, b.ID))
		})
		to.lists("ready", inspect.Filter{State: signalbox.StateReady}, ids(order)...)
	})
}

// Completed jobs that are kept are neither exported nor moved, and keep their IDs.
func TestCompletedStay(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	to := s.beside()
	for _, q := range []*stage{s, to} {
		s.must(s.ins.SetCompletedRetention(t.Context(), q.Name(), signalbox.Retention{Jobs: 5, Bytes: 1 << 20, Age: time.Hour}))
	}
	s.puts("a", "b")
	file := s.exported()
	for _, q := range []*stage{s, to} {
		if q == to {
			q.puts("a")
		}
		got := q.claim(1)[0]
		q.claim(0, store.Settlement{ID: got.Job.ID, Token: got.Job.Token, Outcome: store.Completed, Keep: store.Kept(&store.Attempt{Number: 1, Worker: "w"}, nil)})
		q.one("a", signalbox.StateCompleted)
	}
	if after := s.exported(); strings.Contains(after, `{"id":"a"`) || !strings.Contains(after, `{"id":"b"`) || !strings.Contains(after, `"keep_completed_jobs":5,"keep_completed_bytes":1048576,"keep_completed_us":3600000000`) {
		t.Errorf("the file: %s", after)
	}
	if done := to.imports(file, inspect.Importing{Settings: true}); done != (inspect.Imported{Jobs: 2, Done: 1, There: 1}) {
		t.Errorf("import: %+v", done)
	}
	third := s.beside()
	third.imports(file, inspect.Importing{Settings: true})
	if q, err := s.ins.Queue(t.Context(), third.Name()); err != nil || q.CompletedRetention != (signalbox.Retention{Jobs: 5, Bytes: 1 << 20, Age: time.Hour}) {
		t.Errorf("settings: %+v, %v", q, err)
	}
	if _, err := s.ins.Do(t.Context(), s.Name(), "a", inspect.Move{To: third.Name()}); !errors.Is(err, inspect.ErrTaken) {
		t.Errorf("a move to where the ID is: %v", err)
	}
	fourth := s.beside()
	if _, err := s.ins.Do(t.Context(), s.Name(), "a", inspect.Move{To: fourth.Name()}); !errors.Is(err, inspect.ErrState) {
		t.Errorf("a move: %v", err)
	}
	if _, err := third.ins.Do(t.Context(), third.Name(), "a", inspect.Move{To: to.Name()}); !errors.Is(err, inspect.ErrTaken) {
		t.Errorf("a move onto a completed job: %v", err)
	}
}

// A job that changes its state all the time is in each file.
func TestExportBesideWorkers(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	want := numbered("j", 40)
	s.puts(want...)
	ctx, stop := context.WithCancel(t.Context())
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		for n := 0; ctx.Err() == nil; n++ {
			outcome := []store.Outcome{store.Return, store.Delay}[n%2]
			reply, err := s.Sessions().Claim(context.WithoutCancel(ctx), s.lane, &store.ClaimRequest{Session: s.session, Want: 7})
			s.lane.Next()
			if err != nil {
				t.Error(err)
				return
			}
			var settle []store.Settlement
			for _, d := range reply.Deliveries {
				settle = append(settle, store.Settlement{ID: d.Job.ID, Token: d.Job.Token, Outcome: outcome})
			}
			if _, err := s.Sessions().Claim(context.WithoutCancel(ctx), s.lane, &store.ClaimRequest{Session: s.session, Settle: settle}); err != nil {
				t.Error(err)
				return
			}
			s.lane.Next()
		}
	}()
	ran := int64(0)
	for range 50 {
		var b bytes.Buffer
		done, err := s.ins.Export(t.Context(), s.Name(), &b, nil)
		s.must(err)
		ran += done.Running
		for _, id := range want {
			if !strings.Contains(b.String(), `{"id":"`+id+`"`) {
				t.Errorf("job %s is not in the file", id)
			}
		}
	}
	stop()
	<-worked
	t.Logf("%d were running", ran)
}

// heldRecord returns the record of a job that is held.
func heldRecord(t *testing.T) []byte {
	t.Helper()
	record := wire.AppendRecord(nil, &signalbox.Job{Kind: "k", EnqueuedAt: time.Now(), ScheduledAt: time.Now()})
	due := bytes.Clone(record[12:20])
	record, err := wire.Hold(record, wire.Held{Peer: "q", Move: "m", State: "ready"})
	if err != nil {
		t.Fatal(err)
	}
	copy(record[12:], due)
	return record
}

// A queue that was paused for the import gives out no jobs before all of them are in, whatever the settings of the file.
func TestImportSettingsResumeAtTheEnd(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.puts(numbered("j", 450)...)
	file := s.exported()
	to := s.beside()
	paused := func() bool {
		q, err := s.ins.Queue(t.Context(), to.Name())
		s.must(err)
		return q.Paused
	}
	_, err := s.ins.Pause(t.Context(), to.Name())
	s.must(err)
	if _, err := s.ins.Import(t.Context(), to.Name(), strings.NewReader(file[:len(file)-5]), inspect.Importing{Settings: true}); !errors.Is(err, inspect.ErrFile) || !paused() {
		t.Errorf("a file that was cut off: %v; paused: %v", err, paused())
	}
	var during []bool
	_, err = s.ins.Import(t.Context(), to.Name(), strings.NewReader(file), inspect.Importing{Settings: true, Progress: func(inspect.Imported) { during = append(during, paused()) }})
	s.must(err)
	if len(during) != 4 || slices.Contains(during[:3], false) || paused() {
		t.Errorf("it was paused while jobs were put in: %v, and at the end: %v", during, paused())
	}
}

// Lines that are no jobs are named by their numbers. Nothing of them is in the error, and the others come in.
func TestImportOfGarbage(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.put(signalbox.Job{ID: "a", Payload: []byte(`{"card":"SECRET"}`)}, store.When{})
	file := strings.Split(strings.TrimSuffix(s.exported(), "\n"), "\n")
	head, job, end := file[0], file[1], file[2]
	change := func(old, new string) string {
		t.Helper()
		if !strings.Contains(job, old) {
			t.Fatalf("%s has no %s", job, old)
		}
		return strings.Replace(job, old, new, 1)
	}
	bad := []struct{ line, says string }{
		{"SECRET", "line 2: signalbox: invalid line: it is no JSON: there is a mistake at byte 1 of"},
		{job[:len(job)-20], "no JSON"},
		{job + job, "more behind the JSON"},
		{change(`"id":"a"`, `"id":7`), `field "id" has a value of another type`},
		{change(`"id":"a"`, `"id":""`), "id: want 1 to"},
		{change(`"id":"a"`, `"id":"the SECRET"`), "id: want 1 to"},
		{change(`"state":"ready"`, `"state":"running"`), "state: jobs can be put in as scheduled, ready, dead or cancelled"},
		{change(`"state":"ready"`, `"state":"dead"`), "ended_at: it is missing"},
		{change(`"kind":"k"`, `"kind":"the SECRET"`), "kind: want 1 to"},
		{change(`"priority":"normal"`, `"priority":"SECRET"`), "priority: want high"},
		{change(`"max_attempts":25`, `"max_attempts":-1`), "max_attempts: it is out of bounds"},
		{change(`"max_attempts":25`, `"max_attempts":25,"crashes":300`), "crashes: it is out of bounds"},
		{change(`"max_attempts":25`, `"max_attempts":25,"SECRET":300`), "a field that this release doesn't know"},
		{change(`"max_attempts":25`, `"max_attempts":25,"job":300`), `a field that this release doesn't know: "job"`},
		{change(`"due_at":"2`, `"due_at":"SECRET 2`), "due_at: want a time in RFC 3339"},
		{change(`"due_at":"2`, `"due_at":"9`), "2255"},
		{change(`"enqueued_at":"2`, `"enqueued_at":"1`), "1970"},
		{change(`"effect_key":"`, `"effect_key":"SECRET `), "effect key: at most"},
		{change(`"max_attempts":25`, `"max_attempts":25,"extras_base64":"U0VDUkVU"`), "extras"},
		{change(`"max_attempts":25`, `"max_attempts":25,"record_base64":"SECRET!"`), "base64"},
		{change(`"kind":"k"`, `"record_base64":""`), "kind: want 1 to"},
		{change(`"kind":"k"`, `"record_base64":"`+base64.StdEncoding.EncodeToString(heldRecord(t))+`"`), "record_base64: it is of a job that is being moved"},
		{change(`"state":"ready"`, `"state":"dead","ended_at":"1960-01-01T00:00:00Z","record_base64":"`+base64.StdEncoding.EncodeToString(wire.AppendRecord(nil, &signalbox.Job{Kind: "k", EnqueuedAt: time.Now(), ScheduledAt: time.Now()}))+`"`), "ended_at: it is before 1970 or after 2255"},
		{change(`"SECRET"`, `"`+strings.Repeat("SECRET", 300_000)+`"`), "bytes, at most"},
		{change(`"SECRET"`, `"`+strings.Repeat("SECRET", 3_000_000)+`"`), "longer than 12 MiB"},
		{end + "\n" + job, "line 3: signalbox: invalid line: it stands behind the last one"},
	}
	for _, c := range bad {
		to := s.beside()
		text := strings.Join([]string{head, c.line, change(`"id":"a"`, `"id":"b"`), end}, "\n")
		if strings.HasPrefix(c.line, end) {
			text = strings.Join([]string{head, c.line}, "\n")
		}
		done, err := s.ins.Import(t.Context(), to.Name(), strings.NewReader(text), inspect.Importing{})
		if !errors.Is(err, inspect.ErrFile) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "SECRET") || len(err.Error()) > 500 {
			t.Errorf("%.80s: %.500v; want one that says %s", c.line, err, c.says)
		}
		if want := (inspect.Imported{Jobs: 1, Done: 1, Bad: 1}); done != want && !strings.HasPrefix(c.line, end) {
			t.Errorf("%.80s: %+v, want %+v", c.line, done, want)
		}
	}
	to := s.beside()
	_, err := s.ins.Import(t.Context(), to.Name(), strings.NewReader(strings.Join([]string{head, "x", "y", end}, "\n")), inspect.Importing{})
	if err == nil || !strings.Contains(err.Error(), "2 of its lines are no jobs: line 2: ") || !strings.Contains(err.Error(), "; line 3: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("of two bad lines: %v", err)
	}
	for what, c := range map[string]struct {
		file string
		want error
		says string
	}{
		"nothing":           {"", signalbox.ErrInvalid, "its first line"},
		"no file":           {"SECRET\n" + job, signalbox.ErrInvalid, "its first line"},
		"another document":  {job + "\n" + end, signalbox.ErrInvalid, "its first line"},
		"a newer format":    {strings.Replace(head, `"format":1`, `"format":2`, 1) + "\n" + job, signalbox.ErrInvalid, "format 2"},
		"settings":          {strings.Replace(head, `"slots":0`, `"slots":-1`, 1) + "\n" + job, signalbox.ErrInvalid, "slots"},
		"one that is short": {head + "\n" + job + "\n", inspect.ErrFile, "cut off behind line 2"},
	} {
		_, err := s.ins.Import(t.Context(), to.Name(), strings.NewReader(c.file), inspect.Importing{Settings: true})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v; want one that says %s", what, err, c.says)
		}
	}
	to.one("a", signalbox.StateScheduled) // of the last
	if _, err := s.ins.Import(t.Context(), "{}", strings.NewReader(head), inspect.Importing{}); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("a name that no queue has: %v", err)
	}
	if _, err := s.ins.Export(t.Context(), "mial", io.Discard, nil); !errors.Is(err, inspect.ErrNoQueue) {
		t.Errorf("a queue that isn't there: %v", err)
	}
}

// A queue that nobody has used is known once something was imported.
func TestImportIntoANewQueue(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.puts("a")
	name := redistest.Name(t)
	done, err := s.ins.Import(t.Context(), name, strings.NewReader(s.exported()), inspect.Importing{})
	if err != nil || done.Done != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	queues, err := s.ins.Queues(t.Context())
	s.must(err)
	if !slices.ContainsFunc(queues, func(q inspect.Queue) bool { return q.Name == name && q.Scheduled == 1 }) {
		t.Errorf("%+v", queues)
	}
	s.must(check.Queue(t.Context(), store.New(s.rdb, s.namespace, name).Site()))
}

// The jobs of a move that wasn't finished are in one file, as what they were.
func TestExportOfHeldJobs(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := newStage(t, srv.Client())
	to := s.beside()
	s.puts("a")
	s.end(store.Dead, "boom", s.claim(1)...)
	rdb := srv.ClientWith(nil)
	rdb.AddHook(dying(6))
	if _, err := inspector(t, rdb, s.namespace).Do(t.Context(), s.Name(), "a", inspect.Move{To: to.Name()}); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	if file := to.exported(); strings.Count(file, "\n") != 2 {
		t.Errorf("the copy is in the file: %s", file)
	}
	third := s.beside()
	third.imports(s.exported(), inspect.Importing{})
	if job := third.one("a", signalbox.StateDead); job.LastError != "boom" || job.DueAt.After(time.Now().Add(time.Hour)) {
		t.Errorf("%+v", job)
	}
	if _, err := s.ins.Do(t.Context(), s.Name(), "a", inspect.Move{To: to.Name()}); err != nil {
		t.Error(err)
	}
}

// Many jobs, and large ones, go through a file in little memory.
func TestLongFile(t *testing.T) {
	s := newStage(t, redistest.Start(t).Client())
	const n = 1500
	s.puts(numbered("j", n)...)
	for i := range 6 {
		s.put(signalbox.Job{ID: fmt.Sprint("large", i), Payload: make([]byte, 1<<20-100)}, store.When{})
	}
	to := s.beside()
	r, w := io.Pipe()
	go func() {
		_, err := s.ins.Export(context.Background(), s.Name(), w, nil)
		w.CloseWithError(err)
	}()
	base, most := heap(), uint64(0)
	done, err := s.ins.Import(t.Context(), to.Name(), r, inspect.Importing{Progress: func(inspect.Imported) { most = max(most, heap()) }})
	if err != nil || done.Done != n+6 || done.There+done.Bad != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	grown := max(int64(most)-int64(base), 0)
	t.Logf("the heap grew by %d KiB", grown>>10)
	if grown > 48<<20 {
		t.Errorf("the heap grew by %d KiB", grown>>10)
	}
}
