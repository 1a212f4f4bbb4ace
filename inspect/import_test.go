package inspect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A cut is a client whose n-th command fails: before Redis got it, or after Redis ran it. All later ones fail as well.
type cut struct {
	left int
	late bool
	ran  bool // the command was there
}

func (c *cut) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cut) fails(run func() error) error {
	c.left--
	if c.left > 0 || c.left == 0 && c.late {
		err := run()
		if c.left > 0 {
			return err
		}
	}
	c.ran = true
	return errDied
}

func (c *cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := c.fails(func() error { return next(ctx, cmd) })
		if errors.Is(err, errDied) {
			cmd.SetErr(err)
		}
		return err
	}
}

func (c *cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := c.fails(func() error { return next(ctx, cmds) })
		if errors.Is(err, errDied) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// withPast gives a queue something of each kind that it knows of the past, and returns a file of it.
func (s *stage) withPast(jobs int) string {
	s.t.Helper()
	ctx := s.t.Context()
	s.puts(numbered("j", jobs)...)
	hash := func(key string, fields ...any) { s.t.Helper(); s.must(s.rdb.HSet(ctx, s.keys+key, fields...).Err()) }
	s.must(s.rdb.Set(ctx, s.keys+"outbox:box:3", "17 abc p0", 0).Err())
	s.must(s.rdb.Set(ctx, s.keys+"outbox:box:4", "5 abcv v", 0).Err())
	s.must(s.rdb.Set(ctx, s.keys+"outbox:other:4", "2 x p01 0a 1b", 0).Err())
	hash("cron", "nightly", "1769000000000000", "plan nightly", "0123456789abcdef 1 2 3", "jobs nightly", "a b", "young", "5")
	hash("settings", "cron:nightly", "1769000000000001")
	hash("entries", "quiet:nightly", "1 ", "spec:nightly", "\x0a\x01k\x12\x09@every 1s", "job:nightly", "", "seen:nightly", "9 0123456789012345678901234567890123456789 0123456789abcdef")
	till := time.Now().Add(time.Hour).UnixMicro()
	hash("unique", "k kopen", fmt.Sprint(till, " gone"))
	s.must(s.rdb.ZAdd(ctx, s.keys+"windows", redis.Z{Score: float64(till), Member: "k kopen"}).Err())
	// Until a whole second: the times of servers whose clocks differ by less than half of one are the same then, rounded.
	_, err := s.Settings().HoldBack(ctx, "gslow", "j000001", time.Until(time.Now().Truncate(time.Second).Add(time.Hour)))
	s.must(err)
	dead := s.claim(1)
	s.end(store.Dead, "boom", dead...)
	hash("notes", "dead "+dead[0].Job.ID, "1769000000000000")
	_, err = s.ins.Pause(ctx, s.Name())
	s.must(err)
	s.must(s.ins.SetSlots(ctx, s.Name(), 7))
	return s.exported()
}

// past returns what a queue knows of the past.
func (s *stage) past() (all []string) {
	s.t.Helper()
	for p, err := range s.Transfer().Pasts(s.t.Context()) {
		s.must(err)
		all = append(all, fmt.Sprintf("%+v", p))
	}
	for p, err := range s.Transfer().JobPasts(s.t.Context()) {
		s.must(err)
		all = append(all, fmt.Sprintf("%+v", p))
	}
	holds, err := s.Settings().Holds(s.t.Context())
	s.must(err)
	for _, h := range holds {
		all = append(all, fmt.Sprint(h.Group, h.By, h.Until.Round(time.Second)))
	}
	slices.Sort(all)
	return all
}

// namesake returns a queue of the same name and namespace on another Redis.
func (s *stage) namesake(rdb redis.UniversalClient) *stage {
	s.t.Helper()
	s.must(rdb.FlushDB(s.t.Context()).Err())
	q := store.New(rdb, s.namespace, s.Name())
	to := &stage{Queue: q, t: s.t, rdb: rdb, ins: inspector(s.t, rdb, s.namespace), namespace: s.namespace, keys: s.keys, session: store.NewSession(me), lane: q.NewLane(), enqueue: q.NewLane()}
	return to
}

// An import that is cut off at any command, before or after Redis ran it, is ended by a second one: each job is there once, all that the file's queue knew is known, and
// nothing runs before the end.
func TestImportIsCutOffAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	file := s.withPast(450)
	want := s.past()
	if len(want) != 8 {
		t.Fatalf("it knows %q", want)
	}
	other := redistest.New(t)
	for _, late := range []bool{false, true} {
		for n := 1; ; n++ {
			to := s.namesake(other.Client())
			rdb := other.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
			c := &cut{left: n, late: late}
			rdb.AddHook(c)
			first, err := inspector(t, rdb, s.namespace).Import(t.Context(), s.Name(), strings.NewReader(file), inspect.Importing{Settings: true})
			if !c.ran {
				if err != nil || first != (inspect.Imported{Jobs: 450, Done: 450, Past: 8}) {
					t.Errorf("uncut: %+v, %v", first, err)
				}
				if n < 12 {
					t.Errorf("only %d commands", n)
				}
				break
			}
			name := fmt.Sprintf("cut at %d, late %v", n, late)
			there, lenErr := to.rdb.HLen(t.Context(), s.keys+"jobs").Result()
			if !errors.Is(err, errDied) || errors.Is(err, inspect.ErrFile) || lenErr != nil || first.Done > there {
				t.Errorf("%s: %+v, %v, of %d jobs", name, first, err, there)
			}
			if q, err := to.ins.Queue(t.Context(), s.Name()); err == nil && there > 0 && (!q.Paused || q.Slots != 7) {
				t.Errorf("%s: the settings came late: %+v", name, q)
			}
			again := to.imports(file, inspect.Importing{Settings: true})
			if again.Jobs != 450 || again.Done+again.There != 450 || again.There != there || again.Past+again.PastThere != 8 || again.PastOther != 0 {
				t.Errorf("%s: again %+v, and %d were there", name, again, there)
			}
			if got := to.past(); !slices.Equal(got, want) {
				t.Errorf("%s: it knows\n%q, want\n%q", name, got, want)
			}
			if third := to.imports(file, inspect.Importing{}); third != (inspect.Imported{Jobs: 450, There: 450, Past: 1, PastThere: 7}) { // a hold is made again
				t.Errorf("%s: once more %+v", name, third)
			}
			if n := to.rdb.HLen(t.Context(), s.keys+"jobs").Val(); n != 450 {
				t.Errorf("%s: %d jobs", name, n)
			}
			s.must(check.Queue(t.Context(), to.Site()))
		}
	}
}

// What the queue knows that is later stays; what is earlier gives way. A dry run says the same, and changes nothing.
func TestImportKeepsWhatIsLater(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	file := s.withPast(1)
	to := s.namesake(redistest.New(t).Client())
	ctx := t.Context()
	till := fmt.Sprint(time.Now().Add(2*time.Hour).UnixMicro(), " mine")
	s.must(to.rdb.Set(ctx, s.keys+"outbox:box:3", "18 def p0", 0).Err())
	s.must(to.rdb.Set(ctx, s.keys+"outbox:box:4", "4 def p0", 0).Err())
	s.must(to.rdb.Set(ctx, s.keys+"outbox:other:4", "2 y p0", 0).Err())
	s.must(to.rdb.HSet(ctx, s.keys+"cron", "nightly", "1768999999999999", "plan nightly", "fedcba9876543210 1 2 3", "jobs nightly", "c", "young", "6").Err())
	s.must(to.rdb.HSet(ctx, s.keys+"entries", "spec:nightly", "old", "job:nightly", "old", "quiet:young", "5 6").Err())
	s.must(to.rdb.HSet(ctx, s.keys+"unique", "k kopen", till).Err())
	s.must(to.rdb.HSet(ctx, s.keys+"notes", "dead j000000", "7").Err())
	before := to.past()
	want := inspect.Imported{Jobs: 1, Done: 1, Past: 3, PastThere: 5}
	if dry := to.imports(file, inspect.Importing{DryRun: true}); dry != want || !slices.Equal(to.past(), before) {
		t.Errorf("dry: %+v, want %+v; it knows %q", dry, want, to.past())
	}
	if done := to.imports(file, inspect.Importing{}); done != want {
		t.Errorf("%+v, want %+v", done, want)
	}
	for key, text := range map[string]string{"outbox:box:3": "18 def p0", "outbox:box:4": "5 abcv v", "outbox:other:4": "2 y p0"} {
		if got := to.rdb.Get(ctx, s.keys+key).Val(); got != text {
			t.Errorf("%s is %q, want %q", key, got, text)
		}
	}
	for key, fields := range map[string]map[string]string{
		"cron":     {"nightly": "1769000000000000", "plan nightly": "0123456789abcdef 1 2 3", "jobs nightly": "a b", "young": "6"},
		"settings": {"cron:nightly": "1769000000000001"},
		"entries": {
			"quiet:nightly": "1 ", "spec:nightly": "\x0a\x01k\x12\x09@every 1s", "job:nightly": "", "quiet:young": "5 6",
			"seen:nightly": "9 0123456789012345678901234567890123456789 0123456789abcdef",
		},
		"unique": {"k kopen": till},
		"notes":  {"dead j000000": "7"},
	} {
		got := to.rdb.HGetAll(ctx, s.keys+key).Val()
		if maps.DeleteFunc(got, func(name, _ string) bool { _, asked := fields[name]; return !asked }); !maps.Equal(got, fields) {
			t.Errorf("%s has %q, want %q", key, got, fields)
		}
	}
	// Into a queue of another name comes what doesn't go by the name.
	elsewhere := s.beside()
	if done := elsewhere.imports(file, inspect.Importing{}); done != (inspect.Imported{Jobs: 1, Done: 1, Past: 2, PastOther: 6}) {
		t.Errorf("another queue: %+v", done)
	}
	if got := elsewhere.past(); len(got) != 2 {
		t.Errorf("another queue knows %q", got)
	}
	// A key that a live job has stays its.
	third := s.namesake(to.rdb)
	s.must(third.rdb.HSet(ctx, s.keys+"unique", "k kopen", "e holder").Err())
	third.puts("holder")
	if done := third.imports(file, inspect.Importing{}); done.PastThere != 1 || third.rdb.HGet(ctx, s.keys+"unique", "k kopen").Val() != "e holder" {
		t.Errorf("a key that is held: %+v", done)
	}
	// A window that is over by now, by Redis' clock, opens no more. It counts as taken over: nothing of the file is missing.
	ended := regexp.MustCompile(`"[0-9]+ gone"`).ReplaceAllString(file, fmt.Sprintf(`"%d gone"`, time.Now().Add(-time.Minute).UnixMicro()))
	fourth := s.namesake(to.rdb)
	if done := fourth.imports(ended, inspect.Importing{}); ended == file || done != (inspect.Imported{Jobs: 1, Done: 1, Past: 8}) {
		t.Errorf("a window that is over: %+v", done)
	}
	if n := fourth.rdb.Exists(ctx, s.keys+"unique", s.keys+"windows").Val(); n != 0 {
		t.Errorf("a window that is over is open: %q", fourth.past())
	}
}

// A reader that fails ends the import with its error. What came before is in, and the queue stays paused.
func TestImportOfAFailingReader(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.puts(numbered("j", 450)...)
	file := s.exported()
	lines := strings.SplitAfter(file, "\n")
	broken := errors.New("the disk is broken")
	for _, n := range []int{0, 1, 2, 201, 202, 300, 451} { // whole lines before it fails
		to := s.beside()
		_, err := s.ins.Pause(t.Context(), to.Name())
		s.must(err)
		whole := strings.Join(lines[:n], "")
		half := lines[n][:len(lines[n])/2]
		done, err := s.ins.Import(t.Context(), to.Name(), io.MultiReader(strings.NewReader(whole+half), iotest.ErrReader(broken)), inspect.Importing{Settings: true})
		want := int64(max(n-1, 0))
		if !errors.Is(err, broken) || errors.Is(err, inspect.ErrFile) || done != (inspect.Imported{Jobs: want, Done: want}) {
			t.Errorf("after %d lines: %+v, %v; want %d", n, done, err, want)
		}
		if q, err := s.ins.Queue(t.Context(), to.Name()); err != nil || !q.Paused || q.Scheduled != want {
			t.Errorf("after %d lines: %+v, %v", n, q, err)
		}
		if again := to.imports(file, inspect.Importing{Settings: true}); again != (inspect.Imported{Jobs: 450, Done: 450 - want, There: want}) {
			t.Errorf("after %d lines, again: %+v", n, again)
		}
		if q, err := s.ins.Queue(t.Context(), to.Name()); err != nil || q.Paused {
			t.Errorf("after %d lines, again: %+v, %v", n, q, err)
		}
	}
	// However the reader gives the bytes, they are the same file; without the last line's end, too.
	for name, r := range map[string]io.Reader{
		"byte by byte":     iotest.OneByteReader(strings.NewReader(file)),
		"with EOF":         iotest.DataErrReader(strings.NewReader(file)),
		"without the end":  strings.NewReader(strings.TrimSuffix(file, "\n")),
		"with blank lines": strings.NewReader(strings.ReplaceAll(file, "\n", "\n \n")),
		"with CRLF":        strings.NewReader(strings.ReplaceAll(file, "\n", "\r\n")),
	} {
		to := s.beside()
		if done, err := s.ins.Import(t.Context(), to.Name(), r, inspect.Importing{}); err != nil || done != (inspect.Imported{Jobs: 450, Done: 450}) {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
	}
	// A blank line counts in the numbers of lines. A long one is one, wherever it is.
	long := strings.Repeat("x", 12<<20+1)
	for text, says := range map[string]string{
		lines[0] + "\n\nwrong\n" + lines[451]:      "line 4: signalbox: invalid line: it is no JSON",
		lines[0] + long + "\nwrong\n" + lines[451]: "2 of its lines are no jobs: line 2: signalbox: invalid line: it is longer than 12 MiB; line 3: ",
		lines[0] + lines[1] + long:                 "line 3: signalbox: invalid line: it is longer than 12 MiB",
		long + "\n" + lines[1]:                     "its first line is not that of an export",
	} {
		to := s.beside()
		_, err := s.ins.Import(t.Context(), to.Name(), strings.NewReader(text), inspect.Importing{})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.300v; want one that says %s", err, says)
		}
	}
}

// A file that has a job twice, or is read into a queue that has it: the first one stays. A job is as it was in the file, whatever lines stand beside it.
func TestImportTwiceInAFile(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	for i, id := range numbered("j", 30) {
		s.put(signalbox.Job{ID: id, Payload: fmt.Appendf(nil, `{"n":%d,"pad":%q}`, i, strings.Repeat("x", i*7))}, store.When{})
	}
	lines := strings.SplitAfter(s.exported(), "\n")
	second := strings.Replace(lines[1], `"priority":"normal"`, `"priority":"low"`, 1)
	to := s.beside()
	done := to.imports(strings.Join(slices.Concat(lines[:31], []string{second, lines[31]}), ""), inspect.Importing{})
	if done != (inspect.Imported{Jobs: 31, Done: 30, There: 1}) {
		t.Errorf("%+v", done)
	}
	for _, want := range s.list(inspect.Filter{State: signalbox.StateReady}) {
		got, err := s.ins.Job(t.Context(), to.Name(), want.ID)
		s.must(err)
		if !bytes.Equal(got.Payload, want.Payload) || got.Priority != want.Priority {
			t.Errorf("%s has %s, %v; want %s", got.ID, got.Payload, got.Priority, want.Payload)
		}
	}
}

// An import that is told to stop says so, and leaves the queue paused. The last progress has all that is known.
func TestImportIsStopped(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.puts(numbered("j", 450)...)
	file := s.exported()
	to := s.beside()
	_, err := s.ins.Pause(t.Context(), to.Name())
	s.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	var last inspect.Imported
	done, err := s.ins.Import(ctx, to.Name(), strings.NewReader(file), inspect.Importing{Settings: true, Progress: func(now inspect.Imported) { last = now; cancel() }})
	if !errors.Is(err, context.Canceled) || done.Done != 200 || last != done {
		t.Errorf("%+v, %v; last %+v", done, err, last)
	}
	if q, err := s.ins.Queue(t.Context(), to.Name()); err != nil || !q.Paused || q.Scheduled != 200 {
		t.Errorf("%+v, %v", q, err)
	}
}

// Lines of the past that are not those of a file are named, and nothing of them is in the error.
func TestImportOfAGarbledPast(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	lines := strings.SplitAfter(s.withPast(1), "\n")
	other := redistest.New(t).Client()
	head, end := lines[0], lines[len(lines)-2]
	for line, says := range map[string]string{
		`{"past":"SECRET","name":"a","value":"1"}`:                                           "past",
		`{"past":"outbox","name":"the SECRET","value":"1 a p0"}`:                             "name",
		`{"past":"outbox","name":"a","value":"SECRET"}`:                                      "value",
		`{"past":"outbox","name":"a","value":"0 a p0"}`:                                      "value",
		`{"past":"outbox","name":"a","value":"1 a p0\nSECRET"}`:                              "value",
		`{"past":"outbox","name":"a","shard":-1,"value":"1 a p0"}`:                           "value",
		`{"past":"outbox","name":"a","shard":"SECRET"}`:                                      `field "shard"`,
		`{"past":"cron","name":"","entry":{"last":"1"}}`:                                     "name",
		`{"past":"cron","name":"a"}`:                                                         "entry",
		`{"past":"cron","name":"a","entry":{"last":"SECRET"}}`:                               "last",
		`{"past":"cron","name":"a","entry":{"plans":"SECRET"}}`:                              "plans",
		`{"past":"cron","name":"a","entry":{"paused":"-1"}}`:                                 "paused",
		`{"past":"cron","name":"a","entry":{"quiet":"SECRET"}}`:                              "quiet",
		`{"past":"cron","name":"a","entry":{"seen":"SECRET"}}`:                               "seen",
		`{"past":"cron","name":"a","entry":{"jobs":"the  SECRET"}}`:                          "jobs",
		`{"past":"unique","name":"SECRET","value":"1 a"}`:                                    "name",
		`{"past":"unique","name":"k kSECRET","value":"x a"}`:                                 "value",
		`{"past":"unique","name":"k kSECRET","value":"1"}`:                                   "value",
		`{"past":"death","name":"a","value":"SECRET"}`:                                       "value",
		`{"past":"hold","name":"SECRET","value":"","until":"2030-01-01T00:00:00Z"}`:          "name",
		`{"past":"hold","name":"gacme","value":"the SECRET","until":"2030-01-01T00:00:00Z"}`: "value",
		`{"past":"hold","name":"gacme","value":"","until":"SECRET"}`:                         "until",
		`{"past":"hold","name":"gacme","value":"","SECRET":1}`:                               "doesn't know",
	} {
		to := s.namesake(other)
		done, err := to.ins.Import(t.Context(), s.Name(), strings.NewReader(head+line+"\n"+end), inspect.Importing{})
		if !errors.Is(err, inspect.ErrFile) || !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "line 2: ") || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "SECRET") || done != (inspect.Imported{Bad: 1}) {
			t.Errorf("%s: %+v, %v; want one that says %s", line, done, err, says)
		}
		if got := to.past(); len(got) != 0 {
			t.Errorf("%s: it knows %q", line, got)
		}
	}
	// A lane that another program wrote isn't written over.
	to := s.namesake(other)
	s.must(other.Set(t.Context(), s.keys+"outbox:box:3", "mine", 0).Err())
	if _, err := to.ins.Import(t.Context(), s.Name(), strings.NewReader(strings.Join(lines, "")), inspect.Importing{}); err == nil || errors.Is(err, inspect.ErrFile) || !strings.Contains(err.Error(), "another program") {
		t.Errorf("a lane of another program: %v", err)
	}
	if text := other.Get(t.Context(), s.keys+"outbox:box:3").Val(); text != "mine" {
		t.Errorf("it has %q", text)
	}
	s.must(other.Del(t.Context(), s.keys+"outbox:box:3").Err())
}

// runsAt writes a file, and has something done before the write of that number.
type runsAt struct {
	bytes.Buffer
	n  int
	do func()
}

func (w *runsAt) Write(p []byte) (int, error) {
	if w.n--; w.n == 0 {
		w.do()
	}
	return w.Buffer.Write(p)
}

// A throttled job starts and ends while its queue is exported, at any line of the file; or an operator deletes it; or another one comes. After the import no key is without its job, and the key of
// a job that is there is its own; also if the file is imported again when the job has ended there.
func TestExportBesideAThrottledJob(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for what := range 3 {
		for n := 1; ; n++ {
			s := newStage(t, rdb)
			s.unique("throttled", "x", wire.Throttled)
			s.unique("window", "y", wire.ForWindow)
			out := &runsAt{n: n, do: func() {
				switch what {
				case 0:
					s.end(store.Completed, "", s.claim(1)...)
				case 1:
					_, err := s.ins.Do(t.Context(), s.Name(), "throttled", inspect.Delete{})
					s.must(err)
				case 2:
					s.unique("late", "z", wire.Throttled)
				}
			}}
			_, err := s.ins.Export(t.Context(), s.Name(), out, nil)
			s.must(err)
			to := s.beside()
			first := to.imports(out.String(), inspect.Importing{})
			s.must(check.Queue(t.Context(), to.Site()))
			key := to.rdb.HGet(t.Context(), to.keys+"unique", wire.UniqueKey("k", "x", false)).Val()
			if out.n > 0 {
				if key != "t throttled" || first.Past != 2 {
					t.Errorf("the key of a job that waits is %q; %+v", key, first)
				}
				to.end(store.Dead, "boom", to.claim(2)...)
				s.must(to.rdb.Del(t.Context(), to.keys+"unique", to.keys+"windows").Err()) // as if its window was over
				to.imports(out.String(), inspect.Importing{})
				s.must(check.Queue(t.Context(), to.Site()))
				break
			}
		}
	}

	// A worker of the queue that imports gets the job before the line of its key is read: the key would be of a job that has started.
	s := newStage(t, rdb)
	s.unique("throttled", "x", wire.Throttled)
	file := s.exported()
	to := s.beside()
	to.imports(file, inspect.Importing{})
	s.must(to.rdb.Del(t.Context(), to.keys+"unique").Err()) // as if the line was not read yet
	started := to.claim(1)
	to.imports(file, inspect.Importing{})
	if key := to.rdb.HGet(t.Context(), to.keys+"unique", wire.UniqueKey("k", "x", false)).Val(); key != "" {
		t.Errorf("the key of a job that runs is %q", key)
	}
	s.must(check.Queue(t.Context(), to.Site()))
	if !to.unique("later", "x", wire.Throttled) {
		t.Error("a call is lost: it met a job that runs")
	}
	to.end(store.Completed, "", started...)
	s.must(check.Queue(t.Context(), to.Site()))
}
