package producers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/servertest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// ioredisVersion is the version of Node's Redis client.
const ioredisVersion = "5.8.2"

// A job is what a line of the input says.
type job struct {
	Kind     string            `json:"kind,omitempty"`
	Args     any               `json:"args,omitempty"`
	ID       string            `json:"id,omitempty"`
	Delay    float64           `json:"delay,omitempty"` // in s
	At       int64             `json:"at,omitempty"`    // in ms since the Unix epoch
	Priority string            `json:"priority,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Attempts any               `json:"attempts,omitempty"`
	Color    string            `json:"color,omitempty"` // no field of a job
}

// A producer is a process of another language.
type producer struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

// A language starts a program with its Redis client.
type language func(args ...string) *exec.Cmd

func TestRuby(t *testing.T) {
	ruby := look(t, "ruby", "ruby")
	if out, err := exec.Command(ruby, "-e", `require "redis"`).CombinedOutput(); err != nil {
		missing(t, fmt.Errorf("%w: %s", servertest.ErrMissing{Program: "Ruby's gem redis", Package: "ruby-redis"}, out))
	}
	inRuby := func(args ...string) *exec.Cmd {
		return exec.Command(ruby, append([]string{"-w", "testdata/run.rb"}, args...)...)
	}
	testAll(t, inRuby)
	for _, resends := range []string{"0", "1"} {
		t.Run("Fork"+resends, func(t *testing.T) { testFork(newRig(t, inRuby, resends)) })
	}
}

func TestNode(t *testing.T) {
	node, ioredis := look(t, "node", "nodejs"), install(t, "ioredis@"+ioredisVersion)
	testAll(t, func(args ...string) *exec.Cmd {
		cmd := exec.Command(node, append([]string{"testdata/run.mjs"}, args...)...)
		cmd.Env = append(os.Environ(), "IOREDIS="+ioredis)
		return cmd
	})
}

func testAll(t *testing.T, l language) {
	t.Helper()
	for _, file := range []string{"signalbox.rb", "signalbox.mjs", "testdata/run.rb", "testdata/run.mjs"} {
		if _, err := os.ReadFile(file); err != nil { // so go test knows that the result depends on it
			t.Fatal(err)
		}
	}
	t.Run("Enqueue", func(t *testing.T) { testEnqueue(newRig(t, l, "1")) })
	t.Run("Many", func(t *testing.T) { testMany(newRig(t, l, "1")) })
	t.Run("Refused", func(t *testing.T) { testRefused(newRig(t, l, "1")) })
	t.Run("LostReplyThenRefused", func(t *testing.T) { testLostReplyThenRefused(newRig(t, l, "0")) })
	t.Run("LostReplies", func(t *testing.T) { testLostReplies(newRig(t, l, "0")) })
	t.Run("LostRepliesOfAClientThatResends", func(t *testing.T) { testLostReplies(newRig(t, l, "1")) })
}

// look finds a program, or skips the test if it may be missing.
func look(t *testing.T, program, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		missing(t, servertest.ErrMissing{Program: program, Package: pkg})
	}
	return path
}

func missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv(redistest.Env) == "required" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// install has npm fetch packages into a folder, and returns that. Without npm or its registry there is nothing to test.
func install(t *testing.T, packages ...string) string {
	t.Helper()
	npm := look(t, "npm", "npm")
	dir, err := os.MkdirTemp(t.TempDir(), "npm")
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"install", "--prefix", dir, "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"}, packages...)
	for try := 0; ; try++ {
		out, err := exec.CommandContext(t.Context(), npm, args...).CombinedOutput()
		if err == nil {
			return dir
		}
		if try == 2 {
			missing(t, fmt.Errorf("npm install %v: %w\n%s", packages, err, out))
		}
	}
}

// start starts a producer that ends with the test.
func start(t *testing.T, cmd *exec.Cmd) *producer {
	t.Helper()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	p := &producer{t: t, in: in, out: bufio.NewScanner(out)}
	p.out.Buffer(nil, 16<<20)
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil || complaints.Len() > 0 {
			t.Errorf("%v: %v\n%s", cmd.Args, err, complaints.String())
		}
	})
	return p
}

// send writes a line, and receive reads what became of it: as "ID outcome", or the error.
func (p *producer) send(jobs ...job) {
	p.t.Helper()
	line, err := json.Marshal(jobs)
	if err == nil {
		_, err = fmt.Fprintf(p.in, "%s\n", line)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *producer) receive() (outcomes []string, failed string) {
	p.t.Helper()
	var reply struct {
		Results []struct{ ID, Outcome string }
		Error   string
	}
	if !p.out.Scan() {
		p.t.Fatalf("the producer has ended: %v", p.out.Err())
	}
	if err := json.Unmarshal(p.out.Bytes(), &reply); err != nil {
		p.t.Fatal(err)
	}
	for _, r := range reply.Results {
		if r.ID == "" {
			p.t.Error("a job has no ID")
		}
		outcomes = append(outcomes, r.ID+" "+r.Outcome)
	}
	return outcomes, reply.Error
}

// want enqueues jobs, and compares what became of them.
func (p *producer) want(outcome string, jobs ...job) {
	p.t.Helper()
	p.send(jobs...)
	got, failed := p.receive()
	if all := strings.Join(got, ", "); all != outcome || failed != "" {
		p.t.Errorf("got %q, %q; want %q", all, failed, outcome)
	}
}

// refused enqueues jobs, and compares the error.
func (p *producer) refused(part string, jobs ...job) {
	p.t.Helper()
	p.send(jobs...)
	if got, failed := p.receive(); !strings.Contains(failed, part) || got != nil {
		p.t.Errorf("got %v, %q; want the error %q", got, failed, part)
	}
}

// A rig is a queue to which a producer enqueues.
type rig struct {
	*producer
	queue string
	ins   *inspect.Inspector
	proxy *redistest.Proxy
}

// newRig starts a producer behind a proxy. resends is how often its client itself sends a command again.
func newRig(t *testing.T, l language, resends string) *rig {
	t.Helper()
	server := redistest.New(t)
	ins, err := inspect.New(server.Client(), inspect.Config{})
	if err != nil {
		t.Fatal(err)
	}
	proxy := redistest.NewProxy(t, server.Addr())
	queue := redistest.Name(t)
	return &rig{start(t, l(proxy.Addr(), queue, resends)), queue, ins, proxy}
}

func (r *rig) job(id string) inspect.Job {
	r.t.Helper()
	j, err := r.ins.Job(context.Background(), r.queue, id)
	if err != nil {
		r.t.Fatalf("job %s: %v", id, err)
	}
	return j
}

// What a producer says of a job is what the job has.
func testEnqueue(r *rig) {
	t := r.t
	at := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Millisecond)
	long := strings.Repeat("ü€", 200)
	r.want("welcome enqueued, late enqueued, day enqueued",
		job{Kind: "email.welcome", Args: map[string]any{"UserID": 42, "Name": long}, ID: "welcome", Priority: "high", Headers: map[string]string{"tenant": "äcme", "a": ""}, Attempts: 300},
		job{Kind: "k", ID: "late", Delay: 3600.5, Priority: "low"},
		job{Kind: "k", ID: "day", At: at.UnixMilli()})
	welcome := r.job("welcome")
	var args struct {
		UserID int
		Name   string
	}
	if err := json.Unmarshal(welcome.Payload, &args); err != nil || args.UserID != 42 || args.Name != long {
		t.Errorf("arguments %s, %v", welcome.Payload, err)
	}
	if welcome.Kind != "email.welcome" || welcome.State != signalbox.StateReady || welcome.Priority != signalbox.PriorityHigh || welcome.MaxAttempts != 300 || len(welcome.Headers) != 2 || welcome.Headers["tenant"] != "äcme" || !strings.HasPrefix(welcome.EffectKey, "{"+r.queue+"}welcome{") {
		t.Errorf("%+v", welcome)
	}
	if late := r.job("late"); late.State != signalbox.StateScheduled || late.DueAt.Sub(late.EnqueuedAt) != 3600500*time.Millisecond || late.Priority != signalbox.PriorityLow || late.MaxAttempts != 25 || string(late.Payload) != "{}" {
		t.Errorf("%+v", late)
	}
	if day := r.job("day"); !day.DueAt.Equal(at) {
		t.Errorf("%+v", day)
	}
	queues, err := r.ins.Queues(t.Context())
	if err != nil || len(queues) != 1 || queues[0].Name != r.queue {
		t.Errorf("queues %+v, %v", queues, err)
	}

	r.want("welcome exists, new enqueued, late exists", job{Kind: "k", ID: "welcome"}, job{Kind: "k", ID: "new"}, job{Kind: "k", ID: "late"})
	if err := r.ins.SetMaxLength(t.Context(), r.queue, 4); err != nil {
		t.Fatal(err)
	}
	r.send(job{Kind: "k", ID: "one-more"}, job{Kind: "k", ID: "new"})
	if got, failed := r.receive(); strings.Join(got, ", ") != "one-more full, new exists" || !strings.Contains(failed, "QueueFull: signalbox: the queue has as many jobs as it may have: 1 of 2 were left out") {
		t.Errorf("got %v, %q", got, failed)
	}
	if r.job("new").EffectKey == r.job("late").EffectKey {
		t.Error("two jobs have one effect key")
	}
}

// Many jobs go in by several calls, with IDs of their own.
func testMany(r *rig) {
	t := r.t
	jobs := make([]job, 2500)
	for i := range jobs {
		jobs[i] = job{Kind: "k", Args: i}
	}
	r.send(jobs...)
	got, failed := r.receive()
	seen := map[string]bool{}
	for _, outcome := range got {
		id, what, _ := strings.Cut(outcome, " ")
		seen[id] = what == "enqueued"
	}
	if len(seen) != len(jobs) || failed != "" || r.proxy.Count(redistest.Command("EVALSHA"))+r.proxy.Count(redistest.Command("EVAL")) != 4 { // one says NOSCRIPT
		t.Errorf("%d jobs, %q", len(seen), failed)
	}
	for id, in := range seen {
		if !in {
			t.Errorf("%s isn't in", id)
		}
	}
	if string(r.job(strings.Fields(got[2499])[0]).Payload) != "2499" {
		t.Error("the results have another order than the jobs")
	}
}

// A call whose reply or request is lost is made again, and says what became of the jobs the first time: though another one has ended its job meanwhile.
// So it is whether the client sends the command again, or the producer does.
func testLostReplies(r *rig) {
	t := r.t
	r.want("a enqueued", job{Kind: "k", ID: "a"})
	cut := r.proxy.CutReply(redistest.Command("EVALSHA"), 1)
	r.want("b enqueued, a exists", job{Kind: "k", ID: "b"}, job{Kind: "k", ID: "a"})
	<-cut
	cut = r.proxy.CutRequest(redistest.Command("EVALSHA"), 1)
	r.want("c enqueued", job{Kind: "k", ID: "c"})
	<-cut

	held, free := r.proxy.HoldReplies(redistest.Command("EVALSHA"))
	defer free()
	r.send(job{Kind: "k", ID: "d"})
	<-held
	if n, err := r.ins.DeleteWaiting(t.Context(), r.queue, inspect.Waiting{}); err != nil || n.Done != 4 { // all have come and gone
		t.Fatal(n, err)
	}
	r.proxy.Reset()
	r.proxy.Sever()
	free()
	if got, failed := r.receive(); strings.Join(got, "") != "d enqueued" || failed != "" {
		t.Errorf("%v, %q", got, failed)
	}
	stats, err := r.ins.Queue(t.Context(), r.queue)
	if err != nil || stats.Ready != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// What Redis says after a try without a reply doesn't tell whether that was done: so it is in a failover.
func testLostReplyThenRefused(r *rig) {
	t := r.t
	for id, said := range map[string]struct{ reply, want string }{
		"goes-on": {"-READONLY You can't write against a read only replica.", "goes-on enqueued "},
		"ends":    {"-WRONGTYPE Operation against a key", " isn't known which are in: WRONGTYPE"},
	} {
		r.want(id+"-before enqueued", job{Kind: "k", ID: id + "-before"})
		held, free := r.proxy.HoldReplies(redistest.Command("EVALSHA"))
		r.send(job{Kind: "k", ID: id})
		<-held
		r.proxy.Reset()
		r.proxy.Reply(redistest.Command("EVALSHA"), said.reply, 1)
		r.proxy.Sever()
		free()
		if got, failed := r.receive(); !strings.Contains(strings.Join(got, "")+" "+failed, said.want) {
			t.Errorf("%s: got %q, %q; want %q", id, got, failed, said.want)
		}
		r.job(id) // it is in
	}
}

// A process that was forked has a lane of its own: else its call would be taken for that of the other one, made again.
func testFork(r *rig) {
	if _, err := io.WriteString(r.in, "\"fork\"\n"); err != nil {
		r.t.Fatal(err)
	}
	got, failed := r.receive()
	if strings.Join(got, "") != "of-parent enqueued" || failed != "" {
		r.t.Errorf("got %q, %q", got, failed)
	}
	r.job("of-child")
	r.job("of-parent")
}

// What Redis refuses is an error, and the next call goes on. So it is with what can't be a job: then nothing of the call is sent.
func testRefused(r *rig) {
	t := r.t
	r.proxy.Reply(redistest.Command("EVALSHA"), "-OOM command not allowed when used memory > 'maxmemory'.", 1)
	r.refused("none is in: OOM", job{Kind: "k", ID: "a"})
	r.proxy.Reply(redistest.Command("SADD"), "-NOPERM this user has no permissions", 1)
	r.want("a enqueued", job{Kind: "k", ID: "a"})
	calls := r.proxy.Count(redistest.Any)
	for part, wrong := range map[string]job{
		"kind":       {ID: "b"},
		`kind "a b"`: {Kind: "a b"},
		`id "{"`:     {Kind: "k", ID: "{"},
		"urgent":     {Kind: "k", Priority: "urgent"},
		"color":      {Kind: "k", Color: "red"},
		"-1, want":   {Kind: "k", Attempts: -1},
		"1,000,000":  {Kind: "k", Attempts: 1_000_001},
		"one of":     {Kind: "k", Delay: 1, At: 1},
		"delay -1":   {Kind: "k", Delay: -1},
		"bytes":      {Kind: "k", Args: strings.Repeat("x", 1<<20)},
	} {
		r.refused(part, job{Kind: "k", ID: "not-in"}, wrong)
	}
	if n := r.proxy.Count(redistest.Any); n != calls {
		t.Errorf("%d commands were sent", n-calls)
	}
}
