package producers

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// TestBullMQ: the processor of docs/from-bullmq.md forwards all that BullMQ has, though it is killed between a forward and its end, and though the queue is full for a while.
func TestBullMQ(t *testing.T) {
	node := look(t, "node", "nodejs")
	for version, ioredis := range map[string]string{"5.81.5": ioredisVersion, "6.7.0": "6.0.0"} {
		t.Run(version, func(t *testing.T) { testBullMQ(t, node, install(t, "bullmq@"+version, "ioredis@"+ioredis)) })
	}
}

func testBullMQ(t *testing.T, node, dir string) {
	server := redistest.New(t)
	if !server.Real() {
		t.Skip("BullMQ needs a redis-server")
	}
	proxy := redistest.NewProxy(t, server.Addr())
	_, port, _ := net.SplitHostPort(server.Addr())
	_, proxyPort, _ := net.SplitHostPort(proxy.Addr())
	for _, file := range []string{"signalbox.mjs", "testdata/bullmq.mjs", "../../../docs/enqueue.lua"} {
		write(t, dir, filepath.Base(file), read(t, file))
	}
	blocks := regexp.MustCompile("(?s)```js\n(.*?)```").FindAllStringSubmatch(read(t, "../../../docs/from-bullmq.md"), -1)
	if len(blocks) != 3 {
		t.Fatalf("the page has %d blocks of code", len(blocks))
	}
	// The page has what a service needs. This one is in a hurry.
	hurry := strings.NewReplacer("new Redis()", "new Redis("+proxyPort+")", "10_000", "300", "{ connection, ", "{ connection, stalledInterval: 500, lockDuration: 5000, ")
	write(t, dir, "forward.mjs", "const connection = { host: '127.0.0.1', port: "+port+" };\n"+hurry.Replace(blocks[1][1]+blocks[2][1]))
	if out, err := exec.Command(node, filepath.Join(dir, "bullmq.mjs"), port).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ins, err := inspect.New(server.Client(), inspect.Config{})
	if err != nil {
		t.Fatal(err)
	}
	held, free := proxy.HoldReplies(func(cmd []string) bool {
		return slices.ContainsFunc(cmd, func(arg string) bool { return strings.HasPrefix(arg, "bullmq-") })
	})
	_, kill := run(t, node, dir)
	<-held // one is in, and BullMQ doesn't know it
	kill()
	free()
	if err := ins.SetMaxLength(t.Context(), "mail", 100); err != nil {
		t.Fatal(err)
	}
	complaints, kill := run(t, node, dir)
	redistest.Eventually(t, func() bool { return strings.Contains(complaints(), "as many jobs as it may have") }, "nothing is said of a full queue")
	if err := ins.SetMaxLength(t.Context(), "mail", 0); err != nil {
		t.Fatal(err)
	}
	rdb := server.Client()
	redistest.Eventually(t, func() bool {
		tx := rdb.TxPipeline() // at one moment: jobs go from one to the other
		waiting, active, prioritized, delayed := tx.LLen(t.Context(), "bull:mail:wait"), tx.LLen(t.Context(), "bull:mail:active"), tx.ZCard(t.Context(), "bull:mail:prioritized"), tx.ZCard(t.Context(), "bull:mail:delayed")
		_, err := tx.Exec(t.Context())
		return err == nil && waiting.Val()+active.Val()+prioritized.Val() == 0 && delayed.Val() == 1 // the job whose name is no kind
	}, "BullMQ isn't empty")
	kill()
	if n, said := rdb.ZCard(t.Context(), "bull:mail:failed").Val(), complaints(); n != 0 || !strings.Contains(said, `no kind signalbox: kind "a name with spaces"`) {
		t.Errorf("%d jobs have failed there; it said %s", n, said)
	}
	if q, err := ins.Queue(t.Context(), "mail"); err != nil || q.Ready != 301 || q.Scheduled != 2 { // with a tick that waited, and the page's own job of both processes
		t.Errorf("%v, %+v; want 301 jobs, and 2 that are scheduled", err, q)
	}
	for id, count := range map[string]int{"failed": 20, "waiting": 100, "delayed": 60, "prioritized": 40, "not-kept": 80} {
		for i := range count {
			j, err := ins.Job(t.Context(), "mail", fmt.Sprintf("bullmq-m%%C3%%BCller%%20%%7B%s%%7D%%20%d", id, i))
			if err != nil || j.State != signalbox.StateReady || j.Kind != "email.welcome" || string(j.Payload) != fmt.Sprintf(`{"attempts":%d}`, j.MaxAttempts) {
				t.Errorf("%v, %+v", err, j)
			}
		}
	}
}

// run starts the page's program. kill ends it at once. complaints is what it has said.
func run(t *testing.T, node, dir string) (complaints func() string, kill func()) {
	t.Helper()
	cmd := exec.Command(node, filepath.Join(dir, "forward.mjs"))
	said, err := os.CreateTemp(dir, "said")
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(kill)
	return func() string { return read(t, said.Name()) }, kill
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, dir, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
