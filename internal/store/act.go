package store

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// An Act is what is done to jobs. Make one with the functions below.
type Act struct {
	verb   string
	states []signalbox.State // for which it is
	due    time.Time         // zero: now
	class  string
	why    string
}

// waiting, blocked and resting are states of jobs that no worker has.
var (
	waiting = []signalbox.State{signalbox.StateScheduled, signalbox.StateReady}
	blocked = append(slices.Clone(waiting), signalbox.StateAwaiting)
	resting = append(slices.Clone(waiting), signalbox.StateDead, signalbox.StateCancelled, signalbox.StateCompleted)
)

// CancelJobs ends jobs as cancelled. One that runs is marked: it ends so, whatever its handler returns. For one that is cancelled
// there is nothing to do.
func CancelJobs(why string) Act {
	return Act{verb: "cancel", why: why, states: append(slices.Clone(blocked), signalbox.StateRunning, signalbox.StateCancelled)}
}

// ArchiveJobs makes jobs dead that wait. No worker hears of it, and they aren't copied. For one that is dead there is nothing to do.
func ArchiveJobs(why string) Act {
	return Act{verb: "archive", why: why, states: append(slices.Clone(blocked), signalbox.StateDead)}
}

// DeleteJobs deletes jobs with their records.
func DeleteJobs() Act {
	return Act{verb: "delete", states: append(slices.Clone(resting), signalbox.StateAwaiting)}
}

// RunJobs has jobs run at a time; zero, or a time that has passed: now. Those that had ended begin anew: no attempt has failed, and
// there were no crashes. For one that is ready now there is nothing to do.
func RunJobs(at time.Time) Act { return Act{verb: "run", due: at, states: resting} }

// PrioritiseJobs gives jobs another priority. One that is ready goes behind those that are ready in it. One that has it stays.
func PrioritiseJobs(p signalbox.Priority) Act {
	return Act{verb: "class", class: classes[wire.Class(p)], states: blocked}
}

// Of returns the act for jobs of these states only, of those that it is for.
func (a Act) Of(states ...signalbox.State) Act {
	a.states = slices.DeleteFunc(slices.Clone(a.states), func(s signalbox.State) bool { return !slices.Contains(states, s) })
	return a
}

// States returns the states that the act is for.
func (a Act) States() []signalbox.State { return a.states }

// Acted says what became of one job.
type Acted int

// What became of it. But for Done nothing was changed.
const (
	Done     Acted = iota
	Gone           // there is no such job
	Wrong          // the act isn't for the job's state
	Changed        // its record is another than that which was read
	Lost           // it has a record, and is in no state
	Failed         // its record can't be changed so
	Occupied       // another job has its ID where it should go
	KeyTaken       // another job has its unique key
	InFlow         // it is of a flow, and so can't be moved; or its flow keeps it from running again
)

// An Answer says what became of one job, and in which state it was.
type Answer struct {
	Acted
	State signalbox.State
}

// A target is a job that is acted on.
type target struct {
	id     string
	digest string // of the record that it must have; "": of any
	record []byte // that it gets; nil: that which it has
}

// Do acts on jobs, each by itself, and returns what became of each. If it fails, it has done so for those that it returns. It may be
// called again.
func (q *Queue) Do(ctx context.Context, a Act, ids []string) ([]Answer, error) {
	targets := make([]target, len(ids))
	for i, id := range ids {
		targets[i] = target{id: id}
	}
	return q.do(ctx, a, targets)
}

// An Edit changes what a producer has said of a job.
type Edit = wire.Edit

// Edit changes a job's record, and has the job run if run is set, in one step. If it fails for this job only, the answer is Failed, beside the error.
func (q *Queue) Edit(ctx context.Context, id string, e Edit, run bool, states ...signalbox.State) (Answer, error) {
	a := Act{verb: "edit", states: append(slices.Clone(resting), signalbox.StateAwaiting)}
	if run {
		a.verb, a.states = "run", resting
	}
	if len(states) > 0 {
		a = a.Of(states...)
	}
	for range facts.MaxTries {
		record, err := q.rdb.HGet(ctx, q.keys.Jobs, id).Bytes()
		switch {
		case errors.Is(err, redis.Nil):
			return Answer{Acted: Gone}, nil
		case err != nil:
			return Answer{}, err
		}
		edited, err := e.Apply(record)
		if err != nil {
			return Answer{Acted: Failed}, err
		}
		sum := sha1.Sum(record)
		answers, err := q.do(ctx, a, []target{{id: id, digest: hex.EncodeToString(sum[:]), record: edited}})
		if err != nil {
			return Answer{}, err
		}
		if answers[0].Acted != Changed {
			return answers[0], nil
		}
	}
	return Answer{Acted: Failed}, facts.ErrMoving
}

const (
	// maxActed is the most jobs that one call is for.
	maxActed = 500
)

func (q *Queue) do(ctx context.Context, a Act, targets []target) ([]Answer, error) {
	answers := make([]Answer, 0, len(targets))
	var sessions []string
	for tries := 0; len(answers) < len(targets); {
		var err error
		if sessions == nil {
			if sessions, err = q.rdb.ZRange(ctx, q.keys.Sessions, 0, -1).Result(); err != nil {
				return answers, err
			}
			if len(sessions) > facts.MaxActSessions {
				return answers, fmt.Errorf("store: queue %q has %d sessions; jobs can be acted on with at most %d", q.name, len(sessions), facts.MaxActSessions)
			}
		}
		part := targets[len(answers):]
		part = part[:min(len(part), maxActed, max(1, (scripts.MaxArgs-100-len(sessions))/3))]
		reply, err := q.act(ctx, a, sessions, part)
		if err != nil {
			return answers, err
		}
		if reply.Str(0) == "again" { // a session was opened meanwhile
			if tries++; tries == facts.MaxTries {
				return answers, facts.ErrMoving
			}
			sessions = nil
			continue
		}
		some, err := parseActed(reply, len(part))
		if err != nil {
			return answers, err
		}
		answers, tries = append(answers, some...), 0
	}
	return answers, nil
}

// act makes one call for jobs of a queue that has these sessions.
func (q *Queue) act(ctx context.Context, a Act, sessions []string, targets []target) (*scripts.Reply, error) {
	keys := scripts.Act.Keys(&q.keys)
	for _, session := range sessions {
		keys = append(keys, q.keys.Inflight(session))
	}
	due, states := "", " "
	if !a.due.IsZero() {
		due = strconv.FormatInt(max(a.due.UnixMicro(), 0), 10)
	}
	for _, s := range a.states {
		states += string(s) + " "
	}
	why := wire.AppendCancelled(nil, a.why, false)
	if a.verb == "archive" {
		why = wire.AppendArchived(nil, a.why)
	}
	args := scripts.Act.Args(3*len(targets),
		scripts.Arg("protocol", layout.Protocol), scripts.Arg("verb", a.verb), scripts.Arg("states", states), scripts.Arg("due", due), scripts.Arg("class", a.class), scripts.Arg("why", why), scripts.Arg("mark", facts.MarkOf(a.why)),
		scripts.Arg("keep_jobs", q.kept.Jobs), scripts.Arg("keep_bytes", q.kept.Bytes), scripts.Arg("keep_us", q.kept.Age.Microseconds()),
		scripts.Arg("inflight", q.keys.Inflight("")), scripts.Arg("channels", q.keys.Channel("")), scripts.Arg("budget", facts.ActBudget))
	for i := range targets {
		args = append(args, targets[i].id, targets[i].digest, targets[i].record)
	}
	r, err := scripts.Act.Run(ctx, q.rdb, keys, args)
	if err != nil {
		return nil, err
	}
	return r, r.Status("ok", "again")
}

// parseActed reads the answers for the first ones of n jobs: for one of them at least.
func parseActed(r *scripts.Reply, n int) ([]Answer, error) {
	words := r.Strs(2)
	if r.Err == nil && (len(words) == 0 || len(words) > n) {
		r.Fail(2, fmt.Sprintf("%d answers for %d jobs", len(words), n))
	}
	answers := make([]Answer, len(words))
	for i, word := range words {
		what, state, _ := strings.Cut(word, " ")
		acted := slices.Index([]string{"done", "gone", "not", "changed", "lost", "failed", "occupied", "unique", "flow"}, what)
		if acted < 0 {
			r.Fail(2, fmt.Sprintf("%.40q", word))
		}
		answers[i] = Answer{Acted: Acted(acted), State: signalbox.State(state)}
	}
	return answers, r.Err
}

// maxMarks is the most marks that one call reads.
const maxMarks = 250

// Cancelled returns which of these deliveries, tokens by job ID, are of jobs that were cancelled while they run.
func (ss *Sessions) Cancelled(ctx context.Context, running map[string]int64) (map[string]int64, error) {
	cancelled := make(map[string]int64)
	ids := make([]string, 0, len(running))
	for id := range running {
		ids = append(ids, id)
	}
	for some := range slices.Chunk(ids, maxMarks) {
		marks, err := ss.q.rdb.HMGet(ctx, ss.q.keys.Cancels, some...).Result()
		if err != nil {
			scripts.SeekMaster(ctx, ss.q.rdb, err)
			return cancelled, err
		}
		for i, mark := range marks {
			if text, ok := mark.(string); ok && i < len(some) && facts.TokenOf(text) == running[some[i]] {
				cancelled[some[i]] = running[some[i]]
			}
		}
	}
	return cancelled, nil
}
