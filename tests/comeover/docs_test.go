package comeover

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/fromasynq"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// The code of docs/from-asynq.md. TestDocs compares it.

// Welcome is the args of a job, and the payload of a task.
type Welcome struct {
	User int `json:"user"`
}

func send(context.Context, int) error { return nil }

func HandleWelcome(ctx context.Context, t *asynq.Task) error {
	var p Welcome
	if err := json.Unmarshal(t.Payload(), &p); err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return send(ctx, p.User)
}

func before(rdb redis.UniversalClient) error {
	client := asynq.NewClientFromRedisClient(rdb)
	payload, err := json.Marshal(Welcome{User: 7})
	if err != nil {
		return err
	}
	if _, err := client.Enqueue(asynq.NewTask("email:welcome", payload), asynq.Queue("mail"), asynq.MaxRetry(5)); err != nil {
		return err
	}
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: 10, Queues: map[string]int{"mail": 1}})
	mux := asynq.NewServeMux()
	mux.HandleFunc("email:welcome", HandleWelcome)
	return server.Run(mux)
}

// Kind keeps the name that the tasks have.
func (Welcome) Kind() string { return "email:welcome" }

func after(ctx context.Context, rdb redis.UniversalClient) error {
	s, err := scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		return err
	}
	if _, err := s.Enqueue(ctx, Welcome{User: 7}, scheduler.Queue("mail"), scheduler.MaxAttempts(6)); err != nil {
		return err
	}
	w, err := worker.New(rdb, worker.Config{Queues: map[string]worker.Queue{"mail": {Concurrency: 10}}})
	if err != nil {
		return err
	}
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, p Welcome) error { return send(ctx, p.User) })
	return w.Run(ctx)
}

func asAsynq(attempt int, _ error) time.Duration {
	n := attempt - 1
	return time.Duration(n*n*n*n+15+rand.IntN(30)*(n+1)) * time.Second
}

func program(ctx context.Context, asynqRedis, rdb redis.UniversalClient) error {
	m, err := fromasynq.New(asynqRedis, rdb, fromasynq.Config{
		Map: func(t *fromasynq.Task, job *fromasynq.Job) error {
			if t.Type != "email:welcome" {
				return fromasynq.ErrStay
			}
			job.Queue = "mail"
			return nil
		},
	})
	if err != nil {
		return err
	}
	report, err := m.Move(ctx)
	fmt.Println(report.Moved)
	return err
}

func bridge(mux *asynq.ServeMux, s *scheduler.Scheduler) {
	mux.HandleFunc("email:welcome", func(ctx context.Context, t *asynq.Task) error {
		_, err := s.Enqueue(ctx, Welcome{User: 7}, scheduler.ID(t.ResultWriter().TaskID()), scheduler.Queue("mail"))
		return err
	})
}

// TestDocs checks that all code of docs/from-asynq.md is compiled here, and that its map can be read.
func TestDocs(t *testing.T) {
	t.Parallel()
	_, _, _, _ = before, after, program, bridge
	page, err := os.ReadFile("../../docs/from-asynq.md")
	must(t, err)
	code, err := os.ReadFile("docs_test.go")
	must(t, err)
	flat := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 4 {
		t.Errorf("%d blocks of code", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(flat(string(code)), flat(b[1])) {
			t.Errorf("this code isn't compiled:\n%s", b[1])
		}
	}
	maps := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(maps) != 1 {
		t.Fatalf("%d maps", len(maps))
	}
	if _, err := fromasynq.ReadMap(strings.NewReader(maps[0][1])); err != nil {
		t.Error(err)
	}
	if n := len(strings.Fields(string(page))); n > 2500 {
		t.Errorf("it has %d words", n)
	}
}

// TestDelays: the delays of the page are in the bounds of those of asynq, and so are these.
func TestDelays(t *testing.T) {
	t.Parallel()
	delay := worker.RetryPolicy(asAsynq)
	for retried := range 25 {
		for range 100 {
			least := time.Duration(retried*retried*retried*retried+15) * time.Second
			most := least + time.Duration(29*(retried+1))*time.Second
			if theirs := asynq.DefaultRetryDelayFunc(retried, nil, nil); theirs < least || theirs > most {
				t.Errorf("retry %d of asynq comes after %v", retried, theirs)
			}
			if ours := delay(retried+1, nil); ours < least || ours > most {
				t.Errorf("attempt %d: %v", retried+1, ours)
			}
		}
	}
}

// TestRights moves tasks, and gives some back, as the Redis user of the page.
func TestRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/from-asynq.md")
	must(t, err)
	rule := regexp.MustCompile(`(?m)^ACL SETUSER mover .*$`).FindString(string(page))
	srv := redistest.New(t)
	admin := srv.Client()
	var args []any
	for _, word := range strings.Fields(rule) {
		args = append(args, word)
	}
	must(t, admin.Do(t.Context(), args...).Err())
	user := srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "mover", "CHANGE-ME" })
	client, queue := asynq.NewClientFromRedisClient(admin), redistest.Name(t)
	m, err := fromasynq.New(user, admin, fromasynq.Config{})
	must(t, err)
	for round := range int64(2) { // the second finds the ID taken, and one unique key
		for _, opts := range [][]asynq.Option{{asynq.TaskID("a")}, {asynq.TaskID("b"), asynq.ProcessIn(time.Hour), asynq.Unique(time.Hour)}, {asynq.Group("g")}} {
			_, err := client.Enqueue(asynq.NewTask("k", []byte(`{}`)), append(opts, asynq.Queue(queue))...)
			must(t, err)
		}
		report, err := m.Move(t.Context())
		must(t, err)
		if report.Moved != 2-2*round || report.Back != 2*round || report.Groups != 1+round {
			t.Errorf("%+v", report)
		}
	}
	_, err = m.Undo(t.Context())
	must(t, err)
	_, err = m.Entries(t.Context())
	must(t, err)
}

// TestTheCodeOfThePage runs what of the page ends by itself.
func TestTheCodeOfThePage(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := HandleWelcome(ctx, asynq.NewTask("email:welcome", []byte(`{"user":7}`))); err != nil {
		t.Error(err)
	}
	must(t, program(t.Context(), rdb, rdb))
}
