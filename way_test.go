package signalbox_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// What a person reads who follows one plain job: files of Go, and files of Lua. These numbers may get smaller, and have to stay so.
const (
	mostWayGo  = 42
	mostWayLua = 11
)

var (
	wayJobs = flag.Int("way.jobs", 3, "how many jobs TestPlainJobs runs")
	wayLua  = flag.String("way.lua", "", "a file to which TestPlainJobs writes how often each function of Lua ran")
)

// plain is a job without any option.
type plain struct{ N int }

func (plain) Kind() string { return "plain" }

// TestPlainJobs runs jobs without options, one after the other. Each is enqueued when the worker waits for one.
func TestPlainJobs(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	if *wayLua != "" {
		counting := counting(t, rdb)
		defer func() {
			ran, err := rdb.HGetAll(context.Background(), wayKey).Result()
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			for name, n := range ran {
				fmt.Fprintln(&text, name, n)
			}
			if err := os.WriteFile(*wayLua, []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}()
		rdb.AddHook(counting)
	}
	namespace := redistest.Name(t)
	s, err := scheduler.New(rdb, scheduler.Config{Namespace: namespace, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(rdb, worker.Config{Namespace: namespace, Queues: worker.Queues{signalbox.DefaultQueue: {Concurrency: 10}}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan int, 1)
	worker.Handle(w, func(_ context.Context, _ *signalbox.Job, args plain) error {
		ran <- args.N
		return nil
	})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for i := range *wayJobs {
		for rdb.ZCard(ctx, "signalbox:{"+namespace+":"+signalbox.DefaultQueue+"}:idle").Val() == 0 { // redistest.Eventually would count as a file of the way
			if ctx.Err() != nil {
				t.Fatal("the worker is never idle")
			}
		}
		if _, err := s.Enqueue(ctx, plain{i}); err != nil {
			t.Fatal(err)
		}
		if got := <-ran; got != i {
			t.Fatalf("job %d ran, want %d", got, i)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// wayKey is a hash: how often each function of the scripts ran.
const wayKey = "way"

// functionHead is what a function of a script begins with, as Redis gets it.
var functionHead = regexp.MustCompile(`(?m)^(?:local function (\w+)|(\w+) = function)\([^)]*\)$`)

// counting returns a hook that has Redis run scripts which count how often each of their functions, and they themselves, run.
func counting(t *testing.T, rdb redis.UniversalClient) *countingHook {
	t.Helper()
	h := &countingHook{counts: make(map[string]string)}
	for name, text := range scripts.Sources() {
		count := func(what string) string { return fmt.Sprintf("redis.call('HINCRBY', '%s', '%s', 1)\n", wayKey, what) }
		counts := count("scripts/"+name+".lua") + functionHead.ReplaceAllStringFunc(text, func(head string) string {
			of := functionHead.FindStringSubmatch(head)
			return head + "\n" + count(of[1]+of[2])
		})
		sha, err := rdb.ScriptLoad(t.Context(), counts).Result()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sum := sha1.Sum([]byte(text))
		h.counts[hex.EncodeToString(sum[:])] = sha
	}
	return h
}

type countingHook struct{ counts map[string]string }

func (h *countingHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *countingHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *countingHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "evalsha" {
			if sha, ok := h.counts[fmt.Sprint(args[1])]; ok {
				args[1] = sha
			}
		}
		return next(ctx, cmd)
	}
}

// TestWayOfOneJob: "The way of one job" in docs/internals/architecture.md names each file that a plain job goes through, and none besides. It runs TestPlainJobs
// with 100, 400 and 700 jobs, and with counters in all packages: a block of Go, or a function of Lua, is on the way if it runs each time at least once
// more for each job more.
func TestWayOfOneJob(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds all packages, with counters")
	}
	if runtime.GOOS != "linux" {
		t.Skip("the page names files of Linux")
	}
	if testing.CoverMode() != "" {
		t.Skip("it counts by itself")
	}
	t.Parallel()
	const more = 300
	folder := t.TempDir()
	binary := filepath.Join(folder, "way.test")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	run("go", "test", "-c", "-o", binary, "-covermode=count", "-coverpkg=./...", ".")
	counted := func(jobs int) (counts map[string]int) {
		t.Helper()
		counts = make(map[string]int)
		profile, lua := filepath.Join(folder, "profile"), filepath.Join(folder, "lua")
		run(binary, "-test.run=^TestPlainJobs$", "-test.coverprofile="+profile, "-way.lua="+lua, fmt.Sprintf("-way.jobs=%d", jobs))
		for line := range strings.Lines(readText(t, profile) + readText(t, lua)) {
			fields := strings.Fields(line)
			n, err := strconv.Atoi(fields[len(fields)-1])
			if err == nil && fields[0] != "mode:" {
				counts[fields[0]] += n
			}
		}
		return counts
	}
	few, some, many := counted(100), counted(100+more), counted(100+2*more)
	homes := chapterOf(t)
	on := make(map[string]int) // how often the block of a file ran for which that is most often
	for what, n := range many {
		if what == "seldom" { // it makes functions, and is in no file
			continue
		}
		file, _, _ := strings.Cut(what, ":")
		if path, ok := strings.CutPrefix(file, "github.com/signalbox-go/signalbox/"); ok {
			file = path
		} else if home := homes[file]; home != "" {
			file = home
		} else if !strings.HasSuffix(file, ".lua") {
			t.Errorf("%s: the function is in no chapter", what)
		}
		on[file] = max(on[file], min(n-some[what], some[what]-few[what]))
	}
	_, section, _ := strings.Cut(readText(t, "docs/internals/architecture.md"), "\n## The way of one job\n")
	section, _, _ = strings.Cut(section, "\n## ")
	told := make(map[string]bool)
	for _, name := range regexp.MustCompile("`([\\w/]+\\.(?:go|lua))`").FindAllStringSubmatch(section, -1) {
		told[name[1]] = true
	}
	for _, file := range slices.Sorted(maps.Keys(on)) {
		if on[file] >= more && !told[file] {
			t.Errorf("a plain job goes through %s, which docs/internals/architecture.md doesn't name in \"The way of one job\"", file)
		}
	}
	count := map[string]int{}
	for file := range told {
		count[filepath.Ext(file)]++
		if on[file] < more/2 { // what depends on time doesn't run for each job
			t.Errorf("\"The way of one job\" in docs/internals/architecture.md names %s, which %d of %d jobs go through", file, on[file], more)
		}
	}
	t.Logf("files on the way of a plain job: %d of Go, %d of Lua", count[".go"], count[".lua"])
	if count[".go"] > mostWayGo || count[".lua"] > mostWayLua {
		t.Errorf("a plain job goes through %d files of Go and %d of Lua, want at most %d and %d", count[".go"], count[".lua"], mostWayGo, mostWayLua)
	} else if count[".go"] < mostWayGo || count[".lua"] < mostWayLua {
		t.Errorf("a plain job goes through %d files of Go and %d of Lua: let it go through no more, the test says %d and %d", count[".go"], count[".lua"], mostWayGo, mostWayLua)
	}
}

// chapterOf returns the file of each function of the scripts, such as chapters/time.lua.
func chapterOf(t *testing.T) map[string]string {
	t.Helper()
	homes := make(map[string]string)
	folder := filepath.Join("internal", "store", "scripts")
	for _, pattern := range []string{"*.lua", filepath.Join("chapters", "*.lua")} {
		files, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil || len(files) < 10 {
			t.Fatalf("the scripts are not found: %v, %v", files, err)
		}
		for _, file := range files {
			for _, head := range regexp.MustCompile(`(?m)^local function (\w+)`).FindAllStringSubmatch(readText(t, file), -1) {
				name, err := filepath.Rel(folder, file)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(name, "chapters") {
					name = "scripts/" + name
				}
				homes[head[1]] = filepath.ToSlash(name)
			}
		}
	}
	return homes
}
