package fromasynq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/fromasynq"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// What a task says is what its job says, and nothing of it is left in asynq.
func TestMove(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := time.Now().UTC().Truncate(time.Second)
	due := now.Add(time.Hour)
	r.add(
		task{id: "pending", kind: "email:welcome", payload: `{"user": 7}`, state: "pending", at: now.Add(-time.Minute), retry: 5, timeout: 1800, headers: map[string]string{"tenant": "acme", "traceparent": "x"}},
		task{id: "scheduled", kind: "k", payload: `{"a":1}`, state: "scheduled", at: due, deadline: uint64(due.Add(time.Minute).Unix()), retention: 3600, unique: time.Hour},
		task{id: "retry", kind: "k", state: "retry", at: due, deadline: uint64(due.Add(time.Hour).Unix()), retry: 3, retried: 2, lastError: "refused"},
		task{id: "archived", kind: "k", payload: `7`, state: "archived", at: now.Add(-time.Hour), retry: 3, retried: 3, lastError: "for good"},
	)
	plan, err := r.mover(r.rdb, r.rdb, nil).Plan(t.Context())
	r.must(err)
	report := r.move(nil)
	if plan.Moved != 4 || report.Moved != 4 || report.Total != 4 || len(report.Stays) != 0 || !slices.Equal(plan.Differs, report.Differs) {
		t.Errorf("plan %+v, report %+v", plan, report)
	}
	if keys := r.left(); len(keys) != 0 {
		t.Errorf("asynq still has %v", keys)
	}

	pending := r.job("pending")
	if pending.Kind != "email:welcome" || string(pending.Payload) != `{"user": 7}` || pending.MaxAttempts != 6 || pending.Timeout != 30*time.Minute || len(pending.Headers) != 1 || pending.Headers["tenant"] != "acme" ||
		!pending.EnqueuedAt.Equal(now.Add(-time.Minute)) || pending.EffectKey != "asynq/"+r.queue+"/pending" {
		t.Errorf("pending: %+v", pending)
	}
	scheduled := r.job("scheduled")
	if scheduled.State != signalbox.StateScheduled || !scheduled.DueAt.Equal(due) || !scheduled.Deadline.Equal(due.Add(time.Minute)) || scheduled.Retain != time.Hour || scheduled.MaxAttempts != 1 {
		t.Errorf("scheduled: %+v", scheduled)
	}
	retry := r.job("retry")
	if retry.State != signalbox.StateScheduled || !retry.DueAt.Equal(due) || retry.Failed != 2 || retry.LastError != "refused" || !retry.Deadline.Equal(due.Add(time.Hour)) || string(retry.Payload) != "{}" {
		t.Errorf("retry: %+v", retry)
	}
	if dead := r.job("archived"); dead.State != signalbox.StateDead || dead.LastError != "for good" || string(dead.Payload) != "7" {
		t.Errorf("archived: %+v", dead)
	}
	var differs []string
	for _, c := range report.Differs {
		differs = append(differs, c.Type+" "+c.Reason)
	}
	for _, want := range []string{"email:welcome header traceparent", "k deadline", "k unique", "k retention"} {
		if !slices.ContainsFunc(differs, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("not said: %s; but %q", want, differs)
		}
	}
}

// Pending tasks start in the order that they had.
func TestMoveKeepsTheOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := time.Now()
	var want []string
	for i := range 250 {
		id := fmt.Sprintf("t%03d", (i*7)%250)
		want = append(want, id)
		r.add(task{id: id, kind: "k", state: "pending", at: now.Add(time.Duration(i-1000) * time.Millisecond)})
	}
	r.move(nil)
	var got []string
	for job, err := range r.ins.Jobs(t.Context(), r.queue, inspect.Filter{State: signalbox.StateScheduled}) {
		r.must(err)
		got = append(got, job.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the order is %v", got)
	}
}

// What can't be a job stays, is counted by kind and reason, and doesn't keep others from being moved.
func TestMoveLeavesWhatCannotBe(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := time.Now()
	r.add(
		task{id: "text", kind: "plain", payload: "no json", state: "pending", at: now},
		task{id: "with space", kind: "k", state: "pending", at: now},
		task{id: "big", kind: "k", payload: `"` + strings.Repeat("x", 1<<20) + `"`, state: "pending", at: now},
		task{id: "kind", kind: "of {braces}", state: "scheduled", at: now},
		task{id: "old", kind: "k", state: "archived", at: now.Add(-40 * 24 * time.Hour)},
		task{id: "mine", kind: "stays", state: "retry", at: now},
		task{id: "runs", kind: "k", state: "active"},
		task{id: "good", kind: "k", state: "pending", at: now},
	)
	r.must(r.rdb.HSet(t.Context(), r.key("t:garbled"), "msg", "\xff\xff", "state", "pending").Err())
	r.must(r.rdb.LPush(t.Context(), r.key("pending"), "garbled").Err())
	r.must(r.rdb.ZAdd(t.Context(), r.key("g:mine"), redis.Z{Member: "x"}).Err())
	before := r.left()
	stay := func(cfg *fromasynq.Config) {
		cfg.Map = func(t *fromasynq.Task, job *fromasynq.Job) error {
			if t.Type == "stays" {
				return fromasynq.ErrStay
			}
			return nil
		}
	}
	plan, err := r.mover(r.rdb, r.rdb, stay).Plan(t.Context())
	r.must(err)
	if after := r.left(); len(after) != len(before) {
		t.Errorf("a plan has changed %v into %v", before, after)
	}
	for _, report := range []fromasynq.Report{plan, r.move(stay)} {
		if report.Moved != 1 || report.Stayed() != 7 || report.Active != 1 || report.Groups != 1 || len(report.Stays) != 7 {
			t.Errorf("%+v", report)
		}
	}
	if again := r.move(stay); again.Moved != 0 || again.Stayed() != 7 {
		t.Errorf("again: %+v", again)
	}
	r.job("good")
}

// A mover is killed before and after each of its calls. What has arrived runs. Then another mover goes on: each task has arrived once.
func TestMoveKilledAtEachCall(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for at := int64(1); ; at++ {
			r := newRig(t)
			tasks := some(2)
			r.add(tasks...)
			killer := &killer{at: at, after: after}
			client := func() redis.UniversalClient {
				c := redistest.Start(t).ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
				c.AddHook(killer)
				return c
			}
			_, err := r.mover(client(), client(), nil).Move(t.Context())
			if err != nil && !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			arrived := r.drain()
			report := r.move(nil)
			arrived = append(arrived, r.drain()...)
			slices.Sort(arrived)
			if len(arrived) != len(tasks) || len(slices.Compact(slices.Clone(arrived))) != len(tasks) {
				t.Errorf("killed at call %d, after it: %v: these have arrived: %v; %+v", at, after, arrived, report)
			}
			if keys := r.left(); len(keys) != 0 {
				t.Errorf("killed at call %d, after it: %v: asynq still has %v", at, after, keys)
			}
			if err == nil {
				break
			}
		}
	}
}

// A plan only reads, so it is made on a full Redis too. A move says that Redis is full, and loses nothing.
func TestMoveToAFullRedis(t *testing.T) {
	t.Parallel()
	r := rigOn(t, redistest.New(t).Client())
	r.add(task{id: "pending", kind: "k", payload: "1", state: "pending"}, task{id: "archived", kind: "k", payload: "2", state: "archived", at: time.Now(), lastError: "refused"})
	full := func(bytes string) { r.t.Helper(); r.must(r.rdb.ConfigSet(t.Context(), "maxmemory", bytes).Err()) }
	full("1")
	plan, err := r.mover(r.rdb, r.rdb, nil).Plan(t.Context())
	if err != nil || plan.Moved != 2 {
		t.Errorf("the plan: %+v, %v", plan, err)
	}
	if report, err := r.mover(r.rdb, r.rdb, nil).Move(t.Context()); !redis.IsOOMError(err) || report.Moved != 0 {
		t.Errorf("the move: %+v, %v", report, err)
	}
	full("0")
	if report := r.move(nil); report.Moved != 2 {
		t.Errorf("with room: %+v", report)
	}
	r.job("pending")
	r.job("archived")
	if keys := r.left(); len(keys) != 0 {
		t.Errorf("asynq still has %v", keys)
	}
}

// Several movers move the same tasks, while some are killed and what has arrived runs.
func TestMoveBySeveral(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tasks := some(150)
	r.add(tasks...)
	var wg sync.WaitGroup
	errs := make([]error, 12)
	for i := range errs {
		killer := &killer{at: int64(10 + 15*i), after: i%2 == 0}
		client := redistest.Start(t).ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
		client.AddHook(killer)
		m := r.mover(client, client, nil)
		wg.Go(func() { _, errs[i] = m.Move(context.Background()) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, errKilled) {
			t.Error(err)
		}
	}
	arrived := r.drain()
	r.move(nil)
	arrived = append(arrived, r.drain()...)
	slices.Sort(arrived)
	if n := len(slices.Compact(slices.Clone(arrived))); n != len(tasks) || len(arrived) != n {
		t.Errorf("%d tasks: %d have arrived, %d of them different", len(tasks), len(arrived), n)
	}
	if keys := r.left(); len(keys) != 0 {
		t.Errorf("asynq still has %v", keys)
	}
}

// A task whose ID is taken here is given back as it was. So is one whose unique key is taken.
func TestMoveGivesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := time.Now()
	first := task{id: "a", kind: "k", payload: `{"n":1}`, state: "pending", at: now, unique: time.Hour}
	r.add(first)
	r.move(nil)
	second := first
	second.retry = 9
	r.add(second, task{id: "b", kind: "k", payload: `{"n":1}`, state: "scheduled", at: now.Add(time.Hour), unique: time.Hour}, task{id: "c", kind: "k", state: "pending", at: now})
	before, err := r.rdb.HGetAll(t.Context(), r.key("t:a")).Result()
	r.must(err)
	for range 2 {
		report := r.move(nil)
		if report.Back != 2 || report.Stayed() != 2 || len(report.Stays) != 2 {
			t.Fatalf("%+v", report)
		}
	}
	after, err := r.rdb.HGetAll(t.Context(), r.key("t:a")).Result()
	r.must(err)
	list, err := r.rdb.LRange(t.Context(), r.key("pending"), 0, -1).Result()
	r.must(err)
	score, err := r.rdb.ZScore(t.Context(), r.key("scheduled"), "b").Result()
	r.must(err)
	if fmt.Sprint(before) != fmt.Sprint(after) || !slices.Equal(list, []string{"a"}) || int64(score) != now.Add(time.Hour).Unix() {
		t.Errorf("it was %q, and is %q; pending %v, score %v", before, after, list, score)
	}
	if ttl, err := r.rdb.PTTL(t.Context(), r.key("unique:k:a")).Result(); err != nil || ttl <= 0 {
		t.Errorf("its unique key: %v, %v", ttl, err)
	}
	r.drain()
	if report := r.move(nil); report.Moved != 1 || report.Back != 1 { // they have one unique key here
		t.Errorf("once the ID is free: %+v", report)
	}
}

// Undo gives back what is staged and forgets what has arrived, wherever a mover was killed.
func TestUndoAtEachCall(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for at := int64(1); ; at++ {
			r := newRig(t)
			tasks := some(1)
			r.add(tasks...)
			client := redistest.Start(t).ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
			client.AddHook(&killer{at: at, after: after})
			_, moved := r.mover(client, client, nil).Move(t.Context())
			arrived := len(r.drain())
			report, err := r.mover(r.rdb, r.rdb, nil).Undo(t.Context())
			r.must(err)
			plan, err := r.mover(r.rdb, r.rdb, nil).Plan(t.Context())
			r.must(err)
			if int(plan.Moved)+arrived != len(tasks) || report.Back+report.Ended != report.Total {
				t.Errorf("killed at call %d, after it: %v: %d arrived, %+v; then %+v", at, after, arrived, report, plan)
			}
			r.move(nil)
			if arrived += len(r.drain()); arrived != len(tasks) {
				t.Errorf("killed at call %d, after it: %v: %d of %d have arrived", at, after, arrived, len(tasks))
			}
			if moved == nil {
				break
			}
		}
	}
}

// A task that starts, changes or goes between the read and the take is left as it is.
func TestMoveLeavesWhatHasChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := time.Now()
	r.add(task{id: "starts", kind: "k", state: "pending", at: now}, task{id: "changes", kind: "k", state: "scheduled", at: now.Add(time.Hour)}, task{id: "goes", kind: "k", state: "retry", at: now.Add(time.Hour)})
	meanwhile := func(cfg *fromasynq.Config) {
		cfg.Map = func(task *fromasynq.Task, _ *fromasynq.Job) error { // it is called between the two
			ctx := t.Context()
			switch task.ID {
			case "starts":
				return errors.Join(r.rdb.RPopLPush(ctx, r.key("pending"), r.key("active")).Err(), r.rdb.HSet(ctx, r.key("t:starts"), "state", "active").Err())
			case "changes":
				return r.rdb.HSet(ctx, r.key("t:changes"), "msg", text(text(text(nil, 1, "k"), 3, "changes"), 7, "another error")).Err()
			}
			return errors.Join(r.rdb.ZRem(ctx, r.key("retry"), "goes").Err(), r.rdb.Del(ctx, r.key("t:goes")).Err())
		}
	}
	report := r.move(meanwhile)
	if report.Moved != 0 || report.Gone != 3 || report.Stayed() != 0 {
		t.Errorf("%+v", report)
	}
	for _, key := range []string{"t:starts", "t:changes"} {
		if n, err := r.rdb.Exists(t.Context(), r.key(key)).Result(); err != nil || n != 1 {
			t.Errorf("%s is there: %d, %v", key, n, err)
		}
	}
	if got := r.drain(); len(got) != 0 {
		t.Errorf("%v have arrived", got)
	}
}

// Tasks are taken from between others that stay, also if a server takes tasks meanwhile: a few, or so many that none stands near where it was read.
func TestMoveFromTheMiddle(t *testing.T) {
	t.Parallel()
	for _, started := range []int{0, 30, 590} {
		r := newRig(t)
		var tasks []task
		var stays []string // newest first, as the list has them
		for i := range 750 {
			k := task{id: fmt.Sprint("t", i), kind: "goes", state: "pending", at: time.Now()}
			if i < 600 || i%3 == 0 {
				k.kind = "stays"
			}
			if tasks = append(tasks, k); k.kind == "stays" && i >= started {
				stays = append([]string{k.id}, stays...)
			}
		}
		r.add(tasks...)
		once := false
		report := r.move(func(cfg *fromasynq.Config) {
			cfg.Map = func(task *fromasynq.Task, _ *fromasynq.Job) error {
				if task.Type == "stays" {
					return fromasynq.ErrStay
				}
				for i := 0; i < started && !once; i++ {
					id, err := r.rdb.RPopLPush(t.Context(), r.key("pending"), r.key("active")).Result()
					if err := errors.Join(err, r.rdb.HSet(t.Context(), r.key("t:"+id), "state", "active").Err()); err != nil {
						return err
					}
				}
				once = true
				return nil
			}
		})
		// Those that stood beyond the tasks that were read when others started are for the next call.
		report.Moved += r.move(func(cfg *fromasynq.Config) {
			cfg.Map = func(task *fromasynq.Task, _ *fromasynq.Job) error {
				if task.Type == "stays" {
					return fromasynq.ErrStay
				}
				return nil
			}
		}).Moved
		left, err := r.rdb.LRange(t.Context(), r.key("pending"), 0, -1).Result()
		r.must(err)
		if report.Moved != 100 || !slices.Equal(left, stays) || len(r.drain()) != 100 {
			t.Errorf("%d started meanwhile: %d moved; %d are left, of %d", started, report.Moved, len(left), len(stays))
		}
	}
}

// A queue that is paused there is paused here before its first job comes.
func TestMovePauses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(some(1)...)
	r.must(r.rdb.Set(t.Context(), r.key("paused"), "1", 0).Err())
	if report := r.move(nil); !slices.Equal(report.Paused, []string{r.queue}) {
		t.Errorf("%+v", report)
	}
	q, err := r.ins.Queue(t.Context(), r.queue)
	r.must(err)
	if !q.Paused {
		t.Error("the queue isn't paused")
	}
}

// A file says what tasks become.
func TestReadMap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := redistest.Name(t)
	apply, err := fromasynq.ReadMap(strings.NewReader(fmt.Sprintf(`{
		"queues": {%q: %q},
		"kinds": {"email:welcome": {"kind": "welcome", "priority": "high", "rename": {"user_id": "user"}}, "pdf": {"stay": true}},
		"others": "stay"
	}`, r.queue, other)))
	r.must(err)
	now := time.Now()
	r.add(task{id: "a", kind: "email:welcome", payload: `{"user_id":7,"lang":"de"}`, state: "pending", at: now}, task{id: "b", kind: "pdf", state: "pending", at: now}, task{id: "c", kind: "x", state: "pending", at: now})
	if report := r.move(func(cfg *fromasynq.Config) { cfg.Map = apply }); report.Moved != 1 || report.Stayed() != 2 {
		t.Fatalf("%+v", report)
	}
	job, err := r.ins.Job(t.Context(), other, "a")
	r.must(err)
	if job.Kind != "welcome" || string(job.Payload) != `{"lang":"de","user":7}` || job.Priority != signalbox.PriorityHigh {
		t.Errorf("%+v", job)
	}
	for _, wrong := range []string{`{"kind": {}}`, `{"others": "go"}`, `{"kinds": {"a": {"priority": "urgent"}}}`, `{"kinds": {"a": null}}`, `{} {}`, ``} {
		if _, err := fromasynq.ReadMap(strings.NewReader(wrong)); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("ReadMap(%s) = %v", wrong, err)
		}
	}
}
