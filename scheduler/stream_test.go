package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// Each item has one result, in the order of the items, however many queues there are. An item that is wrong has its error.
func TestEnqueueSeq(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	others := []*store.Queue{checked(t, redistest.Start(t).Client()), checked(t, redistest.Start(t).Client())}
	items := many(2345)
	for i := range items {
		switch {
		case i%100 == 7:
			items[i].Args = unencodableArgs{make(chan int)}
		case i%100 == 8:
			items[i].Options = []EnqueueOption{MaxAttempts(0)}
		case i%3 != 0:
			items[i].Options = []EnqueueOption{Queue(others[i%3-1].Name())}
		}
	}
	want := map[string]int{}
	next := 0
	for i, r := range s.EnqueueSeq(context.Background(), slices.Values(items), Queue(q.Name())) {
		if i != next {
			t.Fatalf("the result of item %d comes after that of %d", i, next-1)
		}
		next++
		if bad := i%100 == 7 || i%100 == 8; bad != errors.Is(r.Err, signalbox.ErrInvalid) || bad == r.New {
			t.Fatalf("item %d: %+v", i, r)
		} else if !bad {
			want[r.ID] = i
		}
	}
	if next != len(items) {
		t.Errorf("%d results of %d", next, len(items))
	}
	jobs := append(claimAll(t, q), append(claimAll(t, others[0]), claimAll(t, others[1])...)...)
	if len(jobs) != len(want) {
		t.Errorf("%d jobs, want %d", len(jobs), len(want))
	}
	for _, j := range jobs {
		if i, known := want[j.ID]; !known || string(j.Payload) != fmt.Sprintf(`{"N":%d}`, i) {
			t.Errorf("job %d: %s in %s", i, j.Payload, j.Queue)
		}
	}
}

// A chunk is sent when the loop has had all results of the one before. A loop that is left sends nothing more.
func TestSeqSendsChunkAfterChunk(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	in := func() int {
		counts, err := q.Looks().Counts(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return int(counts.Ready)
	}
	ends := []int{128, 384, 896, 896 + store.MaxBatch, 896 + 2*store.MaxBatch}
	last := 0
	taken := 0
	items := func(yield func(Item) bool) {
		for n := range 1_000_000 {
			taken++
			if !yield(Item{Args: note{n}}) {
				return
			}
		}
	}
	for i, r := range s.EnqueueSeq(ctx, items, Queue(q.Name())) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if k, first := slices.BinarySearch(ends, i+1); first || i == last { // the first and the last of a chunk
			if n := in(); n != ends[k] {
				t.Fatalf("with result %d there are %d jobs, want %d", i, n, ends[k])
			}
			last = i + 1
		}
		if i+1 == ends[3] {
			break
		}
	}
	if n := in(); n != ends[3] || taken != ends[4] {
		t.Errorf("%d jobs after %d items were taken, want %d and %d", n, taken, ends[3], ends[4])
	}
}

func TestSeqBounds(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	for range s.EnqueueSeq(context.Background(), slices.Values([]Item{}), Queue(q.Name())) {
		t.Error("a result without an item")
	}
	var enqueued []int // after each result
	for _, r := range s.EnqueueSeq(context.Background(), func(yield func(Item) bool) {
		for i := range 5 {
			if !yield(Item{Args: unencodableArgs{strings.Repeat("x", 600<<10+i)}}) { // a call can't hold two of them
				return
			}
		}
	}, Queue(q.Name())) {
		counts, err := q.Looks().Counts(context.Background())
		if r.Err != nil || err != nil {
			t.Error(r.Err, err)
		}
		enqueued = append(enqueued, int(counts.Ready))
	}
	if want := []int{1, 2, 3, 4, 5}; !slices.Equal(enqueued, want) {
		t.Errorf("jobs in Redis with each result: %v, want %v", enqueued, want)
	}
	claimAll(t, q)
}

// Options that are wrong are told in one result. No item is taken.
func TestSeqOfWrongOptions(t *testing.T) {
	t.Parallel()
	s := offline(t)
	results := 0
	for i, r := range s.EnqueueSeq(context.Background(), func(func(Item) bool) { t.Error("an item is taken") }, MaxAttempts(0)) {
		results++
		if i != 0 || !errors.Is(r.Err, signalbox.ErrInvalid) || errors.Is(r.Err, ErrUncertain) {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	if results != 1 {
		t.Errorf("%d results", results)
	}
}

// If the context ends, the jobs that were taken and not sent have its error, and the loop ends.
func TestSeqContextEnds(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	taken, results, failed := 0, 0, 0
	items := func(yield func(Item) bool) {
		for taken < 1_000_000 {
			taken++
			if !yield(Item{Args: note{taken}}) {
				return
			}
		}
	}
	for i, r := range s.EnqueueSeq(ctx, items, Queue(q.Name())) {
		results++
		if i == 200 {
			cancel()
		}
		switch {
		case r.Err == nil && failed > 0:
			t.Errorf("job %d is in, after one that is not", i)
		case r.Err != nil:
			failed++
			if !errors.Is(r.Err, context.Canceled) || errors.Is(r.Err, ErrUncertain) || r.New || r.ID == "" {
				t.Fatalf("result %d: %+v", i, r)
			}
		}
	}
	if results != taken || failed == 0 || taken > 200+2*store.MaxBatch {
		t.Errorf("%d results of %d items, %d failed", results, taken, failed)
	}
	if n := len(claimAll(t, q)); n != results-failed {
		t.Errorf("%d jobs, want %d", n, results-failed)
	}
}

// Replies are lost. Each job is in once.
func TestSeqLostReplies(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, nil)
	n, lost := 0, 0
	var cut <-chan struct{}
	for i, r := range s.EnqueueSeq(context.Background(), slices.Values(many(3000)), Queue(q.Name())) {
		if r.Err != nil || !r.New {
			t.Fatal(i, r)
		}
		n++
		select {
		case <-cut:
			lost++
			cut = nil
		default:
		}
		if cut == nil {
			cut = p.CutReply(calls, 1)
		}
	}
	if lost < 3 {
		t.Errorf("%d replies were lost", lost)
	}
	jobs := claimAll(t, q)
	for i, j := range jobs {
		if string(j.Payload) != fmt.Sprintf(`{"N":%d}`, i) {
			t.Fatalf("job %d is %s", i, j.Payload)
		}
	}
	if n != 3000 || len(jobs) != n {
		t.Errorf("%d results, %d jobs", n, len(jobs))
	}
}

// A chunk that Redis refuses fails as a whole. The chunks after it go in.
func TestSeqGoesOn(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, nil)
	p.Reply(calls, "-OOM command not allowed when used memory > 'maxmemory'.", 1)
	var in, failed int
	for i, r := range s.EnqueueSeq(context.Background(), slices.Values(many(1000)), Queue(q.Name())) {
		switch {
		case r.Err == nil && r.New:
			in++
		case errors.Is(r.Err, ErrUncertain) || !strings.Contains(r.Err.Error(), "maxmemory") || i >= firstChunk:
			t.Fatalf("result %d: %+v", i, r)
		default:
			failed++
		}
	}
	if n := len(claimAll(t, q)); failed != firstChunk || in != 1000-firstChunk || n != in {
		t.Errorf("%d are in, %d failed, %d jobs", in, failed, n)
	}
}

// answering answers each call of a script as a server does that enqueues all jobs.
type answering struct{ redis.Hook }

func (answering) DialHook(next redis.DialHook) redis.DialHook { return next }
func (answering) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (answering) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if cmd, ok := cmd.(*redis.Cmd); ok {
			cmd.SetVal([]any{"ok", int64(1), []any{"1"}})
		}
		return nil
	}
}

// The memory of an EnqueueSeq doesn't depend on the number of jobs. Not parallel: it measures the heap.
func TestSeqMemory(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	rdb.AddHook(answering{})
	s := newScheduler(t, rdb)
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	const jobs, bound = 100_000, 2 << 20 // the results alone would take 11 MB, the items 4 MB, the payloads more
	items := func(yield func(Item) bool) {
		for i := 0; i < jobs && yield(Item{Args: note{i}}); i++ {
		}
	}
	early, most, n := 0, 0, 0
	for i, r := range s.EnqueueSeq(context.Background(), items, Header("about", strings.Repeat("x", 100))) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		switch n++; {
		case i == jobs/10:
			early = heap()
		case i > jobs/10 && i%(jobs/5) == 0:
			most = max(most, heap())
		}
	}
	if n != jobs || most > early+bound {
		t.Errorf("%d results; the heap had %d KiB after a tenth of the jobs, and up to %d KiB later", n, early>>10, most>>10)
	}
}

const (
	// importEnv is set for a process that a test starts from its own binary. Its value is the address, the queue and the
	// item to begin with.
	importEnv  = "SIGNALBOX_TEST_IMPORT"
	importJobs = 12_000
)

// importItems are the jobs of such a process, from one on.
func importItems(first int) iter.Seq[Item] {
	return func(yield func(Item) bool) {
		for i := first; i < importJobs; i++ {
			id := "row-" + strconv.Itoa(i)
			if !yield(Item{Args: note{i}, Options: []EnqueueOption{ID(id), EffectKey(id), IfAbsent()}}) {
				return
			}
		}
	}
}

// beImport is the main function of such a process. It writes a line for each result: the item's number, and whether it
// is new.
func beImport(where string) int {
	f := strings.Fields(where)
	first, err := strconv.Atoi(f[2])
	if err != nil {
		return 2
	}
	rdb := redis.NewClient(&redis.Options{Addr: f[0], ContextTimeoutEnabled: true})
	defer rdb.Close()
	s, err := New(rdb, Config{})
	if err != nil {
		return 2
	}
	for i, r := range s.EnqueueSeq(context.Background(), importItems(first), Queue(f[1])) {
		if r.Err != nil {
			fmt.Fprintln(os.Stderr, r.Err)
			return 1
		}
		if _, err := fmt.Printf("%d %t\n", first+i, r.New); err != nil {
			return 1
		}
	}
	return 0
}

// TestSeqResumes: a process that enqueues is killed again and again: wherever it is, or when a chunk is in and its reply on the way. The
// next one begins after the last result. At most one call is made twice, that whose reply was lost is, and each job is in once.
func TestSeqResumes(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	q := checked(t, srv.Client())
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	done, kills, losses, repeated := 0, 0, 0, 0
	lost := false // the reply to a chunk of the last life
	for life := 1; done < importJobs; life++ {
		var held <-chan struct{} // gets a value when a chunk is in and its reply is held
		addr, free := srv.Addr(), func() {}
		if life%2 == 0 {
			addr = proxy.Addr()
			chunks := 0
			held, free = proxy.HoldReplies(func(cmd []string) bool {
				full := calls(cmd) && len(cmd) > store.MaxBatch
				if full {
					chunks++
				}
				return full && chunks == life/2
			})
		}
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", importEnv, addr, q.Name(), done))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		ended, watched := make(chan struct{}), make(chan bool, 1)
		go func() {
			select {
			case <-held:
				_ = cmd.Process.Kill()
				watched <- true
			case <-ended:
				watched <- false
			}
		}()
		killAt := done + life*1117 // while a chunk's results are handed over, or just after
		var text []byte
		buf := make([]byte, 512)
		for killed := life%2 == 0; ; {
			n, err := out.Read(buf)
			text = append(text, buf[:n]...)
			if !killed && bytes.Count(text, []byte("\n")) >= killAt-done && killAt < importJobs {
				killed = true
				kills++
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		close(ended)
		wasLost := lost
		if lost = <-watched; lost {
			kills++
			losses++
		}
		free()
		_ = cmd.Wait() // killed, or what it wrote says all
		again := 0
		lines := strings.Split(string(text), "\n")
		for n, line := range lines[:len(lines)-1] {
			var i int
			var fresh bool
			if _, err := fmt.Sscan(line, &i, &fresh); err != nil || i != done {
				t.Fatalf("the process wrote %q after item %d", line, done-1)
			}
			if n == 0 && fresh && wasLost {
				t.Errorf("job %d is new, and the chunk that it begins was in", i)
			}
			if !fresh {
				again++
			}
			done++
		}
		if again > store.MaxBatch {
			t.Errorf("life %d: %d jobs were sent a second time", life, again)
		}
		if repeated += again; len(lines) == 1 {
			t.Fatal("the process did nothing")
		}
	}
	jobs := claimAll(t, q)
	slices.SortFunc(jobs, func(a, b *signalbox.Job) int { return strings.Compare(a.ID, b.ID) })
	if twice := slices.CompactFunc(jobs, func(a, b *signalbox.Job) bool { return a.ID == b.ID }); len(twice) != importJobs || len(jobs) != importJobs {
		t.Errorf("%d jobs, %d IDs, want %d", len(jobs), len(twice), importJobs)
	}
	if kills == losses || losses == 0 {
		t.Errorf("%d kills, %d of them while a reply was held; want both kinds", kills, losses)
	}
	t.Logf("%d kills, %d of them while a reply was held; %d jobs of %d sent a second time", kills, losses, repeated, importJobs)
}
