package looks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/store/settings"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A View is what a queue has of one job.
type View struct {
	// Job has the ID, the queue and the namespace, the token and the time of the claim if the job runs, and what its record says.
	Job      signalbox.Job
	Err      error          // why the record can't be read; it is errNoRecord if there is none
	Attempts []wire.Attempt // those that failed and are kept, oldest first
	Success  *wire.Attempt  // the one that completed the job, if it is completed and its record says so; else nil
	Result   []byte         // what its handler said is the job's result, if it is completed; nil: nothing
	State    signalbox.State
	At       time.Time // when the job ended, if it has ended; when it is due, if it is scheduled; else zero
	// Unlisted says that the job has a record and a state of ready, but no place in the queue. Jobs has no such job.
	Unlisted bool
	// Lined says that the job waits in the line of its group. Blocked, of Show, says that the line waits for jobs that hold the group.
	Lined, Blocked bool
	Brakes         Brakes      // of Show: those of the job's group, if it waits in the line of it
	Unique         wire.Unique // the job's unique key; of scope 0 if it has none
	Flow           string      // the flow that it is of, or that it waits for, or has waited for; "" if there is none
	FlowMark       string      // the mark of that flow
	FlowRole       byte        // of the job's link with that flow: a letter of package wire's Link constants, in upper case if what it stands for has come
	Awaits         byte        // what it waits for, if it is awaiting: AwaitsSuccess, AwaitsEnd or AwaitsFailure
	Survived       int         // deliveries in a row that have ended by themselves since the job's last crash
	// Of a running job: its session, and the flags behind its token.
	Session, Flags string
	Note           string     // of a job that runs, or has run: the span context of the last attempt that is known; Jobs has it of running ones
	Cursor         string     // where Jobs goes on behind the job; Show has none
	Held           *wire.Held // of a job that is being moved; nil of others
	Record         string     // the record
}

// errNoRecord: an ID has a place in the queue, and no record.
var errNoRecord = errors.New("store: it has no record")

// Worker returns the ID of the worker that has a running job.
func (v *View) Worker() string { return facts.OwnerOf(v.Session) }

// Cancelling reports whether the job is running, and was asked to end.
func (v *View) Cancelling() bool { return facts.Fields{Flags: v.Flags}.Flagged() }

// runs notes what a session holds of the job: a token, and flags behind a space.
func (v *View) runs(session, delivery string) {
	v.State, v.Session, v.Flags, v.Unlisted = signalbox.StateRunning, session, facts.FieldsOf(delivery).Flags, false
	v.Job.Token = facts.TokenOf(delivery)
	v.Job.ClaimedAt = time.UnixMicro(v.Job.Token) // but where tokens were ahead of the clock
}

// placed notes the score of the job, or "" for a job without one, and what the record says. It is nil if there is none.
func (v *View) placed(score string, record any) {
	v.read(record)
	switch {
	case score == "":
	case v.State.Live():
		v.At = facts.TimeOf(facts.ParseScore(score))
	default:
		v.At = EndOf(facts.ParseScore(score), v.Record)
	}
}

// read notes what the record says. It is nil if there is none.
func (v *View) read(record any) {
	text, ok := record.(string)
	if !ok {
		v.Err = errNoRecord
		return
	}
	v.Record = text
	raw := []byte(text)
	if links := wire.LinksOf(raw); links != "" {
		first, _, _ := strings.Cut(links, " ")
		v.Flow, v.FlowMark, _ = strings.Cut(first[1:], "{")
		v.FlowRole = links[0]
		if v.State == signalbox.StateAwaiting {
			v.Awaits = links[0]
		}
	}
	v.Unique, v.Survived = wire.UniqueOf(raw), wire.SurvivedOf(raw)
	v.Err, v.Attempts = wire.Decode(raw, &v.Job), wire.Attempts(raw)
	if v.State == signalbox.StateCompleted {
		v.Success, v.Result = wire.Success(raw)
	}
	if v.Awaits != 0 {
		v.Job.ScheduledAt = v.Job.EnqueuedAt // until it is released its record has a time that never comes
	} else if v.Job.ScheduledAt.Equal(wire.HeldUntil) {
		if h, held := wire.HeldOf(raw); held {
			v.Held = &h
		}
	}
}

// A Situation is what decides how a queue's jobs go on.
type Situation struct {
	At       time.Time // by the server's clock
	Settings settings.Values
	Sessions []string // that are registered
	Queue    Brakes   // those of the queue
}

// Show returns what the queue has of one job at one moment, and the queue's situation then. Brakes are read a moment later. found is false if it has
// no such job.
func (q *Looks) Show(ctx context.Context, id string) (v View, s Situation, found bool, err error) {
	v, s, found, err = q.showWhole(ctx, id)
	if err != nil {
		return View{}, Situation{}, false, err
	}
	return v, s, found, q.readBrakes(ctx, &v, &s)
}

// ShowJob is Show without the queue's situation.
func (q *Looks) ShowJob(ctx context.Context, id string) (v View, found bool, err error) {
	v, _, found, err = q.showWhole(ctx, id)
	return v, found, err
}

// showWhole looks for the job in all sessions, those too that are opened meanwhile.
func (q *Looks) showWhole(ctx context.Context, id string) (v View, s Situation, found bool, err error) {
	for range 10 {
		sessions, err := q.Client.ZRange(ctx, q.Keys.Sessions, 0, -1).Result()
		if err != nil {
			return View{}, Situation{}, false, err
		}
		v, s, found, err = q.show(ctx, id, sessions)
		if err != nil {
			return View{}, Situation{}, false, err
		}
		unseen := func(session string) bool { return !slices.Contains(sessions, session) }
		if !found || v.State != signalbox.StateReady || !slices.ContainsFunc(s.Sessions, unseen) {
			return v, s, found, nil
		}
	}
	return View{}, Situation{}, false, facts.ErrMoving
}

func (q *Looks) show(ctx context.Context, id string, sessions []string) (v View, s Situation, found bool, err error) {
	keys := scripts.Show.Keys(&q.Keys)
	n := min(len(sessions), facts.MaxActSessions)
	for _, session := range sessions[:n] {
		keys = append(keys, q.Keys.Inflight(session))
	}
	r, err := scripts.Show.Run(ctx, q.Client, keys, scripts.Show.Args(0, scripts.Arg("id", id)))
	if err != nil {
		return View{}, Situation{}, false, err
	}
	v, s, found, err = q.parseShow(r, id, sessions[:n])
	if err != nil || !found || v.State != signalbox.StateReady {
		return v, s, found, err
	}
	return v, s, true, q.showMore(ctx, &v, sessions[n:])
}

// parseShow reads what show.lua returned for a call with these sessions.
func (q *Looks) parseShow(r *scripts.Reply, id string, sessions []string) (v View, s Situation, found bool, err error) {
	if err := r.Status("ok"); err != nil {
		return View{}, Situation{}, false, err
	}
	v = View{Job: signalbox.Job{ID: id, Queue: q.Name, Namespace: q.Namespace}, State: signalbox.State(r.Str(4)), Note: noteOf(r.Str(8))}
	there, record, score, k, delivery := r.Int(2) == 1, r.Str(3), r.Str(5), r.Int(6), r.Str(7)
	s = Situation{At: time.UnixMicro(r.Int(1)), Sessions: r.Strs(9), Settings: settings.Of(pairs(r.Strs(10)))}
	v.Unlisted = r.Int(11) == 1
	switch {
	case r.Err != nil:
		return View{}, Situation{}, false, r.Err
	case k < 0 || k > int64(len(sessions)):
		r.Fail(6, fmt.Sprintf("%d, not a session of the call", k))
		return View{}, Situation{}, false, r.Err
	case k > 0:
		v.runs(sessions[k-1], delivery)
		score = ""
	}
	if !there {
		v.placed(score, nil)
		return v, s, v.State != signalbox.StateReady, nil
	}
	v.placed(score, record)
	if state, ok := facts.ParseGroup(r.Str(12)); ok {
		v.Lined, v.Blocked = true, state.States[record[1]-'0'] == 'b'
	}
	return v, s, true, nil
}

// showMore looks for a job in the sessions that had no room in the script's call.
func (q *Looks) showMore(ctx context.Context, v *View, sessions []string) error {
	for part := range slices.Chunk(sessions, facts.MaxActSessions) {
		cmds, err := q.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, session := range part {
				p.HGet(ctx, q.Keys.Inflight(session), v.Job.ID)
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		for i, cmd := range cmds {
			if delivery, err := cmd.(*redis.StringCmd).Result(); err == nil {
				v.runs(part[i], delivery)
			}
		}
	}
	return nil
}

// noteOf returns the span context in a note, which stands behind a token and a space.
func noteOf(note string) string {
	_, span, _ := strings.Cut(note, " ")
	return span
}

// pairs turns fields and values, one after the other, into a map.
func pairs(list []string) map[string]string {
	m := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}

// Situation returns the queue's situation.
func (q *Looks) Situation(ctx context.Context) (Situation, error) {
	made, err := q.settings().Read(ctx)
	if err != nil {
		return Situation{}, err
	}
	now, err := q.Now(ctx)
	if err != nil {
		return Situation{}, err
	}
	var sessions *redis.StringSliceCmd
	brakes, err := q.queueBrakes(ctx, made.Limits, now, func(p redis.Pipeliner) { sessions = p.ZRange(ctx, q.Keys.Sessions, 0, -1) })
	if err != nil {
		return Situation{}, err
	}
	return Situation{At: now, Settings: made, Sessions: sessions.Val(), Queue: brakes}, nil
}

// ownShift is what a score has less than the time when a job is dropped, if its record says how long it is kept: 2^52 µs. The chapter retention of the
// scripts has the same number, and says what it is for.
const ownShift = 1 << 52

// dropTime returns when a job is dropped whose record says how long it is kept, in µs. own is false if the score is of another job: then it is the time when
// the job ended.
func dropTime(score float64) (us float64, own bool) {
	return score + ownShift, score < 0
}

// EndOf returns when a job ended that has this score in the set of its state.
func EndOf(score float64, record string) time.Time {
	if drop, own := dropTime(score); own {
		score = drop - float64(max(wire.RetainOf([]byte(record)), 0).Microseconds())
	}
	return facts.TimeOf(score)
}

// Workers returns the IDs of the workers that have a session with the queue, sorted.
func (s *Situation) Workers() []string { return facts.WorkersOf(s.Sessions) }
