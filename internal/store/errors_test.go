package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/doctor"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// An operation is a call of each kind, made to a queue that has jobs in every state, with
// something to do for it. Called again with the same lanes, it is the same call.
type operation struct {
	name string
	call func(r *rig, got []Delivery) error
	acts bool // it acts on a job
	// groups says that the queue has groups.
	groups bool
	// limited says that the queue's settings have limits of its groups.
	limited bool
	// flow makes the flow that it is for, if there is one.
	flow func(r *rig)
	// Keys that it declares and does not read: another type is no error, or the key is
	// deleted whatever it holds.
	unread func(r *rig) []string
}

func operations() []operation {
	// Claims read what was cancelled only if they settle some of it: see testMarkedOfTheWrongType.
	// What there is of batches they read if there are some.
	marks := func(r *rig) []string {
		return []string{r.keys.Cancels, r.keys.Awaiting, r.keys.FlowNotes, r.keys.FlowTimes, r.keys.Added}
	}
	// Statistics never stop a call that takes them along.
	statistics := func(r *rig) []string { return []string{r.keys.Stats, r.keys.History, r.timesLane()} }
	// A renewal looks at the limits of the queue only if it has some.
	renewal := func(r *rig) []string { return append(statistics(r), r.keys.Running) }
	// Nor do they ask how many completed jobs are kept, if nothing depends on it.
	fewer := func(r *rig) []string { return append(marks(r), r.keys.Completed) }
	settle := func(o Outcome) operation {
		unread := marks
		if o == Completed {
			unread = fewer
		}
		return operation{name: "settle " + string(o), unread: unread, call: func(r *rig, got []Delivery) error {
			reply, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session, Settle: []Settlement{settlement(got[0], o)}})
			if err == nil && len(reply.Refused) > 0 {
				return errors.New("it was refused")
			}
			return err
		}}
	}
	act := func(name string, a Act, id string, was, becomes signalbox.State) operation {
		return operation{name: name, acts: true, call: func(r *rig, _ []Delivery) error {
			answers, err := r.Do(bg, a, []string{id})
			if err != nil {
				return err
			}
			// A call before may have done it: then the job is in the new state, or gone.
			if got := answers[0]; got != (Answer{State: was}) && got != (Answer{State: becomes}) && !(got.Acted == Gone && becomes == "") {
				return fmt.Errorf("got %+v", got)
			}
			return nil
		}}
	}
	ref := facts.FlowRef{Name: "flow", Mark: "aaaaa"}
	made := func(r *rig) {
		_, _, err := r.Flows().Create(bg, ref, FlowTerms{Within: time.Hour}, []Callback{{AwaitsEnd, r.item("end", When{}, 0)}})
		r.must(err)
		joins := r.item("member", When{After: time.Hour}, 0)
		joins.Join(ref)
		lane := r.NewLane()
		lane.Next()
		_, err = r.Flows().Add(bg, lane, &Addition{Flow: ref, Items: []Item{joins}, Digest: "a"})
		r.must(err)
	}
	ops := []operation{
		{name: "enqueue callbacks", call: func(r *rig, _ []Delivery) error {
			_, _, err := r.Flows().Create(bg, ref, FlowTerms{Within: time.Hour, Timeout: time.Hour}, []Callback{{AwaitsEnd, r.item("end", When{}, 0)}})
			return err
		}},
		{name: "enqueue members", flow: made, call: func(r *rig, _ []Delivery) error {
			items := []Item{r.item("m1", When{}, 0), r.grouped("m2", "ga", When{}, 0), r.item("m3", When{After: time.Hour}, 0)}
			for i := range items {
				items[i].Join(ref)
			}
			added, err := r.Flows().Add(bg, r.producer, &Addition{Flow: ref, Items: items, First: 1, Digest: "b"})
			if err == nil && added.Word+added.Fates.list != "in111" {
				return fmt.Errorf("got %s %q", added.Word, added.Fates.list)
			}
			return err
		}},
		{name: "seal", flow: made, call: func(r *rig, _ []Delivery) error { _, err := r.Flows().Seal(bg, ref, Sealing{}); return err }},
		{name: "cancel a flow", flow: made, call: func(r *rig, _ []Delivery) error { _, err := r.Flows().Cancel(bg, ref); return err }},
		{
			name: "pass", call: func(r *rig, _ []Delivery) error { _, _, _, err := r.Flows().Pass(bg, ref.Name); return err },
			flow: func(r *rig) {
				made(r)
				_, err := r.Flows().Cancel(bg, ref)
				r.must(err)
			},
		},
		{
			name: "tend", call: func(r *rig, _ []Delivery) error { _, err := r.Flows().Tend(bg, "0"); return err },
			flow: func(r *rig) {
				made(r)
				r.must(r.rdb.ZAdd(bg, r.keys.FlowTimes, z(1, ref.Name)).Err())
			},
		},
		{
			name: "remove",
			call: func(r *rig, _ []Delivery) error {
				if reasons, err := r.Presence().Remove(bg, Removal{}); err != nil || len(reasons) < 3 {
					return fmt.Errorf("%w: %v", err, reasons)
				}
				return nil
			},
			unread: func(r *rig) []string {
				k := r.keys
				return []string{k.Due, k.Idle, k.ReadyHigh, k.ReadyNormal, k.ReadyLow, k.ReadySuspect, k.Notes, k.Cancels, k.Reporter, k.Lined, k.Turns, k.Groups, k.Running, k.Parked, k.Unique, k.Expires, k.History, k.Awaiting, k.FlowNotes, k.FlowTimes, k.Added}
			},
		},
		{
			name: "enqueue",
			call: func(r *rig, _ []Delivery) error {
				_, err := r.Enqueue(bg, r.producer, []Item{r.item("new", When{}, 0), r.item("later", When{After: time.Hour}, 0)})
				return err
			},
			unread: func(r *rig) []string {
				return append(special(r), r.keys.Cron, r.keys.ReadyHigh, r.keys.ReadyLow, r.keys.Dead, r.keys.Cancelled, r.keys.Completed, r.keys.Notes)
			},
		},
		{
			name: "relay",
			call: func(r *rig, _ []Delivery) error {
				items := []Item{r.item("new", When{}, 0), r.item("later", When{After: time.Hour}, 0), r.grouped("g1", "ga", When{}, 0), r.grouped("g2", "sa", When{After: time.Hour}, 0)}
				_, err := r.Outboxes().Relay(bg, "box", 1, &Batch{Place: Place{1, "n1"}, Items: items})
				return err
			},
			unread: func(r *rig) []string {
				return []string{r.keys.Cron, r.keys.ReadyHigh, r.keys.ReadyLow, r.keys.Dead, r.keys.Cancelled, r.keys.Completed, r.keys.Notes, r.keys.Unique, r.keys.Windows}
			},
		},
		{
			name: "then",
			call: func(r *rig, got []Delivery) error {
				items := []Item{r.item("new", When{}, 0), r.item("later", When{After: time.Hour}, 0), r.grouped("g1", "ga", When{}, 0), r.grouped("g2", "sa", When{After: time.Hour}, 0)}
				reply, err := r.Sessions().Complete(bg, r.lane, &Completion{r.session, settlement(got[0], Completed), items})
				if err == nil && len(reply.Refused) > 0 {
					return errors.New("it was refused")
				}
				return err
			},
		},
		{
			name: "tick",
			call: func(r *rig, _ []Delivery) error {
				tick := When{At: time.Now().Add(-time.Second), Entry: "entry"}
				fates, err := r.Enqueue(bg, r.producer, []Item{r.item("tick", tick, 0), r.item("low", When{}, signalbox.PriorityLow)})
				if err == nil && fates.list != "11" {
					return fmt.Errorf("got %q", fates.list)
				}
				return err
			},
			unread: func(r *rig) []string {
				return append(special(r), r.keys.ReadyHigh, r.keys.Dead, r.keys.Cancelled, r.keys.Completed, r.keys.Notes)
			},
		},
		{
			name: "enqueue of groups",
			call: func(r *rig, _ []Delivery) error {
				_, err := r.Enqueue(bg, r.producer, []Item{r.grouped("g1", "ga", When{}, 0), r.grouped("g2", "sa", When{After: time.Hour}, 0)})
				return err
			},
			unread: func(r *rig) []string {
				return []string{r.keys.Cron, r.keys.ReadyHigh, r.keys.ReadyNormal, r.keys.ReadyLow, r.keys.Dead, r.keys.Cancelled, r.keys.Completed, r.keys.Notes, r.keys.Unique, r.keys.Windows}
			},
		},
		{
			name: "claim of groups", unread: marks, groups: true,
			call: func(r *rig, got []Delivery) error {
				_, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session, Want: 2, Settle: []Settlement{settlement(got[0], Completed)}})
				return err
			},
		},
		{
			name: "claim of limited groups", unread: marks, limited: true,
			call: func(r *rig, got []Delivery) error {
				_, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session, Want: 2, Settle: []Settlement{settlement(got[0], Completed)}})
				return err
			},
		},
		{name: "replace", unread: special, call: func(r *rig, _ []Delivery) error {
			tick := When{At: time.Now().Add(-time.Second), Entry: "entry"}
			fates, err := r.Enqueue(bg, r.producer, []Item{
				r.item("dead2", When{}, signalbox.PriorityHigh), r.item("cancelled2", When{After: time.Hour}, 0), r.item("ready1", When{}, 0), r.item("completed2", When{}, 0),
				r.item("low", When{}, signalbox.PriorityLow), r.item("normal", When{}, 0), r.item("tick", tick, 0),
			})
			if err == nil && fates.list != "DC0F111" {
				return fmt.Errorf("got %q", fates.list)
			}
			return err
		}},
		{name: "claim", unread: marks, call: func(r *rig, got []Delivery) error {
			all := []Settlement{settlement(got[0], Completed), settlement(got[1], Retry)}
			reply, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session, Settle: all, Want: 2, Suspects: true, Address: r.address()})
			if err == nil && (!reply.Alive || len(reply.Deliveries) != 2 || len(reply.Refused) > 0) {
				return fmt.Errorf("it claimed %v, refused %v", ids(reply.Deliveries), reply.Refused)
			}
			return err
		}},
		{name: "keep a completed job", unread: marks, call: func(r *rig, got []Delivery) error {
			reply, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session, Settle: []Settlement{kept(got[0])}})
			if err == nil && len(reply.Refused) > 0 {
				return errors.New("it was refused")
			}
			return err
		}},
		{name: "claim of nothing", unread: fewer, call: func(r *rig, _ []Delivery) error { // but it promotes a job
			reply, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: "idle"})
			if err == nil && (!reply.Alive || !reply.More) {
				return fmt.Errorf("got %+v", reply)
			}
			return err
		}},
		{name: "open", unread: renewal, call: func(r *rig, _ []Delivery) error {
			_, _, err := r.Sessions().Open(bg, "another", time.Minute)
			return err
		}},
		{name: "renew", unread: renewal, call: func(r *rig, _ []Delivery) error {
			alive, _, err := r.Sessions().Renew(bg, r.session, time.Hour, "")
			if err == nil && !alive {
				return errors.New("it is over")
			}
			return err
		}},
		{name: "reclaim", call: func(r *rig, _ []Delivery) error {
			res, err := r.Sessions().Reclaim("crashed", false).Next(bg)
			if err == nil && (len(res.Returned) != 2 || len(res.Dead) != 1 || len(res.Cancelled) != 1) {
				return fmt.Errorf("it reclaimed %v", res)
			}
			return err
		}},
		{
			name: "close",
			call: func(r *rig, _ []Delivery) error {
				_, err := r.Sessions().Close(bg, "idle", false, r.lane)
				return err
			},
			unread: func(r *rig) []string { return append(statistics(r), r.lane.key) },
		},
		{name: "close of a busy session", unread: statistics, call: func(r *rig, _ []Delivery) error {
			left, err := r.Sessions().Close(bg, r.session, false)
			if err == nil && left != 2 {
				return fmt.Errorf("%d deliveries are left", left)
			}
			return err
		}},
		{name: "pause", unread: counters, call: func(r *rig, _ []Delivery) error {
			if _, err := r.Settings().Pause(bg); err != nil {
				return err
			}
			settings, err := r.Settings().Read(bg)
			if err == nil && settings.PausedSince.IsZero() {
				return errors.New("it is not paused")
			}
			return err
		}},
		{name: "resume", unread: counters, call: func(r *rig, _ []Delivery) error {
			if _, err := r.Settings().Pause(bg); err != nil {
				return err
			}
			changed, err := r.Settings().Resume(bg)
			if err == nil && !changed {
				return errors.New("it was not paused")
			}
			return err
		}},
		{name: "slots", unread: counters, call: func(r *rig, _ []Delivery) error {
			if _, err := r.Settings().SetSlots(bg, 5); err != nil {
				return err
			}
			settings, err := r.Settings().Read(bg)
			if err == nil && settings.Slots != 5 {
				return fmt.Errorf("there are %d slots", settings.Slots)
			}
			return err
		}},
		{name: "keep", unread: counters, call: func(r *rig, _ []Delivery) error {
			if err := r.Settings().SetRetention(bg, signalbox.Retention{Jobs: 5}); err != nil {
				return err
			}
			settings, err := r.Settings().Read(bg)
			if err == nil && settings.Retention.Jobs != 5 {
				return fmt.Errorf("it keeps %+v", settings.Retention)
			}
			return err
		}},
		{name: "plan", unread: counters, call: func(r *rig, _ []Delivery) error {
			planned, err := r.Cron().RegisterPlans(bg, []Registration{{Plan: NewPlan("planned", "@daily")}})
			if err == nil && (!planned[0].InForce || planned[0].Since.IsZero()) {
				return fmt.Errorf("%+v", planned)
			}
			return err
		}},
		{name: "announce", unread: counters, call: func(r *rig, _ []Delivery) error {
			if err := r.Cron().Announce(bg, []Notice{notice("other", "@daily", "1")}); err != nil {
				return err
			}
			lacking, err := r.Cron().Remind(bg, []Notice{notice("other", "@daily", "1")})
			if err == nil && len(lacking) > 0 {
				return fmt.Errorf("%v lacks", lacking)
			}
			return err
		}},
		{name: "pause an entry", unread: counters, call: func(r *rig, _ []Delivery) error {
			got, err := r.Cron().PauseEntry(bg, "old")
			if err == nil && got == EntryUnknown {
				return errors.New("it is unknown")
			}
			return err
		}},
		{name: "resume an entry", unread: counters, call: func(r *rig, _ []Delivery) error {
			if _, err := r.Cron().PauseEntry(bg, "old"); err != nil {
				return err
			}
			got, err := r.Cron().ResumeEntry(bg, "old")
			if err == nil && got != EntryChanged {
				return fmt.Errorf("got %v", got)
			}
			return err
		}},
		{name: "forget an entry", unread: counters, call: func(r *rig, _ []Delivery) error {
			_, err := r.Cron().ForgetEntry(bg, "old")
			return err
		}},
		act("cancel a job that waits", CancelJobs("why"), "ready2", signalbox.StateReady, signalbox.StateCancelled),
		act("cancel a job that runs", CancelJobs("why"), "f1", signalbox.StateRunning, signalbox.StateRunning),
		act("run a dead job", RunJobs(time.Time{}), "dead2", signalbox.StateDead, signalbox.StateReady),
		act("run a job later", RunJobs(time.Now().Add(time.Hour)), "ready3", signalbox.StateReady, signalbox.StateScheduled),
		act("run a completed job", RunJobs(time.Time{}), "completed2", signalbox.StateCompleted, signalbox.StateReady),
		act("give another priority", PrioritiseJobs(signalbox.PriorityLow), "due", signalbox.StateScheduled, signalbox.StateScheduled),
		act("delete a job", DeleteJobs(), "cancelled2", signalbox.StateCancelled, ""),
		{name: "put", call: func(r *rig, _ []Delivery) error {
			record := wire.AppendRecord(nil, &signalbox.Job{Kind: "k", EnqueuedAt: time.UnixMicro(1), ScheduledAt: time.UnixMicro(2)})
			answers, err := r.Transfer().putRecords(bg, []placement{{id: "put1", state: signalbox.StateReady, record: record}, {id: "put2", state: signalbox.StateDead, at: time.Now(), record: record}}, false)
			if err == nil && answers[0].Acted != Done && answers[0].Acted != Occupied {
				return fmt.Errorf("got %+v", answers)
			}
			return err
		}},
		{
			name: "past of an outbox", acts: true,
			call: func(r *rig, _ []Delivery) error {
				_, err := r.Transfer().PutPasts(bg, []Past{{Kind: PastOutbox, Name: "box", Shard: 7, Value: "9 abc p0"}}, false)
				return err
			},
		},
		{
			name: "past", acts: true,
			call: func(r *rig, _ []Delivery) error {
				for _, p := range []Past{
					{Kind: PastCron, Name: "moved", Entry: EntryPast{Last: "17", Plans: "ab 1 2 3", Jobs: "a b", Paused: "9", Spec: "s", Job: "j", Seen: "1 x", Quiet: " 3"}},
					{Kind: PastUnique, Name: "k kmoved", Value: "8999999999999999 a"},
					{Kind: PastDeath, Name: "moved", Value: "17"},
				} {
					if _, err := r.Transfer().PutPasts(bg, []Past{p}, false); err != nil {
						return err
					}
				}
				return nil
			},
		},
		{name: "mend", call: func(r *rig, _ []Delivery) error {
			sessions, err := r.Site().SessionsOf(bg, nil)
			if err != nil {
				return err
			}
			done, _, err := doctor.Mend(bg, r.Site(), sessions, &facts.Job{ID: "ready1"}, doctor.Step{Verb: "unlist", A: "1", B: "0"}, doctor.Step{Verb: "list", A: "1", B: ""})
			if err == nil && !done {
				return errors.New("nothing was done")
			}
			return err
		}},
		{name: "sweep", call: func(r *rig, _ []Delivery) error { _, err := r.Sessions().Sweep(bg); return err }},
		{name: "report", call: func(r *rig, _ []Delivery) error {
			mine, err := Reporter("client").Begin(bg, r.Queue)
			if err == nil && !mine {
				return errors.New("another reports")
			}
			return err
		}},
	}
	for _, o := range outcomes {
		ops = append(ops, settle(o))
	}
	return ops
}

// special are the keys that an enqueue of plain jobs doesn't look at.
func special(r *rig) []string {
	return []string{r.keys.Lined, r.keys.Turns, r.keys.Groups, r.keys.Unique, r.keys.Windows, r.keys.Expires}
}

// counters are looked at by calls that need none only if the queue has no layout yet.
func counters(r *rig) []string { return []string{r.keys.Stats} }

// views are the scripts that only read.
func views() []operation {
	found := func(page []looks.View, err error, want ...string) error {
		if err == nil && !slices.Equal(viewed(page), want) {
			return fmt.Errorf("got %v, want %v", viewed(page), want)
		}
		return err
	}
	replied := func(r *scripts.Reply, err error, field int, want ...string) error {
		if err == nil && !slices.Equal(r.Strs(field), want) {
			return fmt.Errorf("got %v, want %v", r.List, want)
		}
		return err
	}
	return []operation{
		{
			name: "show",
			call: func(r *rig, _ []Delivery) error {
				v, there, err := r.Looks().ShowJob(bg, "f1")
				if err == nil && (!there || v.State != signalbox.StateRunning) {
					return fmt.Errorf("%v, %+v", there, v)
				}
				return err
			},
			unread: func(r *rig) []string {
				return []string{r.keys.ReadyHigh, r.keys.ReadyNormal, r.keys.ReadyLow, r.keys.ReadySuspect, r.keys.Lined, r.keys.Groups, r.keys.Awaiting}
			},
		},
		{
			name: "latest",
			call: func(r *rig, _ []Delivery) error {
				page, err := r.Looks().Latest(bg, signalbox.StateDead, 5)
				return found(page, err, "dead2", "dead1")
			},
			unread: func(r *rig) []string { return []string{r.keys.Cancelled} },
		},
		{
			name: "ended",
			call: func(r *rig, _ []Delivery) error {
				ends, err := r.Looks().Ended(bg, []string{"dead1", "ready1", "gone"})
				if err == nil && (len(ends) != 3 || ends[0].State != looks.Over || ends[0].View.State != signalbox.StateDead || ends[1].State != looks.Live || ends[2].State != looks.NoJob) {
					return fmt.Errorf("%+v", ends)
				}
				return err
			},
			unread: func(r *rig) []string { return []string{r.keys.Stats} },
		},
		{
			name: "page",
			call: func(r *rig, _ []Delivery) error {
				page, err := r.listed(looks.Listing{State: signalbox.StateDead})
				return found(page, err, "dead1", "dead2")
			},
			unread: func(r *rig) []string {
				return []string{r.keys.Due, r.keys.Cancelled, r.keys.Completed, r.keys.Lined, r.keys.Awaiting}
			},
		},
		{
			name: "list",
			call: func(r *rig, _ []Delivery) error { // the middle one of the lists
				args := scripts.List.Args(0, scripts.Arg("class", "1"), scripts.Arg("first", 0), scripts.Arg("last", 99), scripts.Arg("room", MaxBytes), scripts.Arg("prefix", ""))
				p, err := scripts.List.Run(bg, r.rdb, scripts.List.Keys(&r.keys), args)
				return replied(p, err, 8, "ready1", "ready2", "ready3")
			},
			unread: func(r *rig) []string { return []string{r.keys.ReadyHigh, r.keys.ReadyLow, r.keys.ReadySuspect} },
		},
		{
			name: "kinds",
			call: func(r *rig, _ []Delivery) error {
				heads, err := scripts.Kinds.Run(bg, r.rdb, scripts.Kinds.Keys(&r.keys), append(scripts.Kinds.Args(2, scripts.Arg("most", 200), scripts.Arg("largest", looks.MaxKindRecord)), "f1", "gone"))
				if err != nil {
					return err
				}
				if kinds := heads.Strs(1); len(kinds) != 2 || kinds[0] == "" || kinds[1] != "" {
					return fmt.Errorf("got %d kinds", len(kinds))
				}
				return nil
			},
		},
		{
			name: "examine",
			call: func(r *rig, _ []Delivery) error {
				sessions, err := r.Site().SessionsOf(bg, nil)
				if err != nil {
					return err
				}
				e, _, err := r.Site().Examine(bg, sessions, facts.Origin{IDs: []string{"ready1", "f1", "nobody"}, Search: true})
				if err == nil && (len(e.Jobs) != 3 || len(e.Jobs[0].Places) != 1 || len(e.Jobs[1].Places) != 1 || e.Jobs[2].There) {
					return fmt.Errorf("got %+v", e.Jobs)
				}
				return err
			},
			unread: func(r *rig) []string { return []string{r.keys.Idle} },
		},
		{
			name: "sum",
			call: func(r *rig, _ []Delivery) error {
				sum, err := scripts.Sum.Run(bg, r.rdb, scripts.Sum.Keys(&r.keys), scripts.Sum.Args(0, scripts.Arg("name", "dead"), scripts.Arg("first", 0), scripts.Arg("last", 999)))
				if err == nil && (sum.Int(2) != 2 || sum.Int(4) == 0 || sum.Str(1) != strconv.FormatInt(sum.Int(4), 10)) {
					return fmt.Errorf("got %v", sum.List)
				}
				return err
			},
			unread: func(r *rig) []string { return []string{r.keys.Cancelled, r.keys.Completed} },
		},
		{name: "deliveries", call: func(r *rig, _ []Delivery) error {
			args := append(scripts.Deliveries.Args(3, scripts.Arg("room", MaxBytes)), "f1", "gone", "f2")
			d, err := scripts.Deliveries.Run(bg, r.rdb, scripts.Deliveries.Keys(&r.keys, r.keys.Inflight(r.session)), args)
			if err == nil && (len(d.Array(2)) != 3 || d.Array(2)[0] == nil || d.Array(2)[1] != nil || d.Array(2)[2] == nil) {
				return fmt.Errorf("got %v", d.List)
			}
			return err
		}},
		{name: "history", call: func(r *rig, _ []Delivery) error {
			h, err := r.Looks().History(bg, looks.Minutes)
			if err == nil && h.Total.Enqueued == 0 {
				return errors.New("it is empty")
			}
			return err
		}},
	}
}

// listed returns all jobs of a listing.
func (r *rig) listed(l looks.Listing) (all []looks.View, err error) {
	for view, err := range r.Looks().Jobs(bg, l) {
		if err != nil {
			return all, err
		}
		all = append(all, view)
	}
	return all, nil
}

// viewed returns the IDs of a page.
func viewed(page []looks.View) []string {
	all := []string{}
	for i := range page {
		all = append(all, page[i].Job.ID)
	}
	return all
}

// furnish fills a queue with jobs in every state and returns what the session has in flight.
func (r *rig) furnish() []Delivery {
	r.t.Helper()
	r.open()
	r.put("poison")
	for range CrashLimit - 1 {
		r.one()
		r.crash()
	}
	crashed := &rig{Queue: r.Queue, t: r.t, lane: r.NewLane(), session: "crashed"}
	crashed.open()
	r.put("c1", "c2", "c3")
	crashed.claim(4) // poison, c1, c2, c3; one more crash is the end of poison
	r.cancel("c3")
	crashed.expire()
	idle := &rig{Queue: r.Queue, t: r.t, session: "idle"}
	idle.open()
	_, _, err := r.Sessions().Open(bg, NewSession("me"), time.Minute)
	r.must(err)

	r.bury(Dead, "dead1", "dead2")
	r.bury(Cancelled, "cancelled1", "cancelled2")
	r.must(r.Settings().SetCompleted(bg, signalbox.Retention{Jobs: 100}))
	r.buryCompleted("completed1", "completed2")
	r.age(r.keys.Completed, "completed1", 40*24*time.Hour)
	r.age(r.keys.Dead, "dead1", 40*24*time.Hour)
	r.age(r.keys.Cancelled, "cancelled1", 40*24*time.Hour)
	r.put("f1", "f2", "ready1", "ready2", "ready3")
	r.enqueued(r.item("due", When{After: time.Hour}, 0))
	r.must(r.rdb.HSet(bg, r.keys.Cron, "entry", 1, "old", 1).Err())
	r.must(r.Cron().Announce(bg, []Notice{notice("old", "@daily", "1")}))
	r.unseen("old", time.Hour)
	got := r.claim(2)
	equal(r.t, "in flight", ids(got), []string{"f1", "f2"})
	r.enqueued(r.item("past", When{After: time.Hour}, 0))
	r.makeDue("1past")
	r.producer.Next()
	r.lane.Next()
	r.must(r.rdb.ZAdd(bg, r.keys.Idle, redis.Z{Score: 1, Member: idle.address()}).Err())
	return got
}

// furnish makes the queue what the operation needs.
func (o operation) furnish(r *rig) []Delivery {
	got := r.furnish()
	if o.groups {
		r.putIn("ga", "g1")
	}
	if o.flow != nil {
		o.flow(r)
	}
	if o.limited {
		_, err := r.Settings().SetGroupLimits(bg, signalbox.Limits{Running: 3})
		r.must(err)
	}
	return got
}

// declared are the KEYS of the script that a call runs.
func declared(r *rig, call func() error) ([]string, error) {
	rdb := r.rdb
	spy := &keySpy{sessions: rdb.ZRange(bg, r.keys.Sessions, 0, -1).Val()}
	defer func() { r.Queue.rdb = rdb }()
	r.Queue.rdb = spy.wrap(r.t)
	err := call()
	return spy.keys, err
}

// A keySpy notes the KEYS of scripts, and answers them with an error.
type keySpy struct {
	sessions []string // of the queue
	mu       sync.Mutex
	keys     []string
}

var errSpied = errors.New("spied")

func (s *keySpy) wrap(t testing.TB) redis.UniversalClient {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // it is never connected
	rdb.AddHook(s)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func (s *keySpy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *keySpy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *keySpy) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if scan, ok := cmd.(*redis.ScanCmd); ok { // it is before the script
			scan.SetVal(nil, 0)
			return nil
		}
		if list, ok := cmd.(*redis.StringSliceCmd); ok { // so is this
			list.SetVal(s.sessions)
			return nil
		}
		if _, ok := cmd.(*redis.IntCmd); ok { // the queue is registered before the script
			return nil
		}
		args := cmd.Args() // EVALSHA sha n key...
		s.keys = s.keys[:0]
		for _, key := range args[3 : 3+args[2].(int)] {
			s.keys = append(s.keys, key.(string))
		}
		return errSpied
	}
}

// Each key of each script in turn holds another type: the call fails, nothing is changed, and
// all is well when the key is.
func TestWrongType(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	rdb := redistest.Start(t).Client()
	covered := map[string]bool{}
	var mu sync.Mutex
	t.Run("operations", func(t *testing.T) {
		for _, op := range slices.Concat(operations(), views()) {
			t.Run(op.name, func(t *testing.T) {
				t.Parallel()
				probe := unchecked(t, rdb)
				got := op.furnish(probe)
				keys, err := declared(probe, func() error { return op.call(probe, got) })
				if !errors.Is(err, errSpied) || len(keys) == 0 {
					t.Fatalf("%v, %v", keys, err)
				}
				for i := range keys {
					r := newQueue(t, rdb)
					got := op.furnish(r)
					keys, _ := declared(r, func() error { return op.call(r, got) })
					key := keys[i]
					mu.Lock()
					covered[strings.SplitN(strings.TrimPrefix(key, r.keys.Prefix), ":s", 2)[0]] = true
					mu.Unlock()
					wrongType(t, r, op, key, got)
				}
			})
		}
	})
	for key := range New(rdb, "", "q").keys.Fixed() {
		key = strings.SplitN(strings.TrimPrefix(key, "signalbox:{default:q}:"), ":s", 2)[0]
		if !covered[key] {
			t.Errorf("no script touches %s", key)
		}
	}
}

func wrongType(t *testing.T, r *rig, op operation, key string, got []Delivery) {
	t.Helper()
	backup := r.keys.Prefix + "backup"
	there := r.rdb.Exists(bg, key).Val() == 1
	if there {
		r.must(r.rdb.Rename(bg, key, backup).Err())
	}
	r.must(r.rdb.SAdd(bg, key, "of another type").Err())
	before := r.dump()
	err := op.call(r, got)
	if op.unread == nil || !slices.Contains(op.unread(r), key) {
		if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s with %s of the wrong type: %v", op.name, key, err)
		}
		r.unchanged(fmt.Sprintf("%s with %s of the wrong type", op.name, key), before)
	} else if err != nil {
		t.Errorf("%s with %s of the wrong type: %v", op.name, key, err)
	}
	r.must(r.rdb.Del(bg, key).Err())
	if there {
		r.must(r.rdb.Rename(bg, backup, key).Err())
	}
	if err := op.call(r, got); err != nil {
		t.Errorf("%s when %s is mended: %v", op.name, key, err)
	}
}

// A master that became a replica refuses all, and nothing is changed; when it is a master
// again, all goes on.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	rdb := srv.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
	for _, op := range operations() {
		r := newQueue(t, rdb)
		got := op.furnish(r)
		before := r.dump()
		r.must(rdb.Do(bg, "REPLICAOF", "127.0.0.1", "1").Err())
		if err := op.call(r, got); !redis.IsReadOnlyError(err) {
			t.Errorf("%s of a replica: %v", op.name, err)
		}
		r.unchanged(op.name+" of a replica", before)
		r.must(rdb.Do(bg, "REPLICAOF", "NO", "ONE").Err())
		if err := op.call(r, got); err != nil {
			t.Errorf("%s of a master again: %v", op.name, err)
		}
	}
}

// Out of memory, nothing more goes in, and what is in goes its way: sessions are renewed and opened,
// jobs are claimed, settled and reclaimed.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t, "--maxmemory-policy", "noeviction").Client()
	for _, op := range operations() {
		r := newQueue(t, rdb)
		got := op.furnish(r)
		before := r.dump()
		r.must(rdb.ConfigSet(bg, "maxmemory", "1").Err())
		err := op.call(r, got)
		if goesIn := strings.HasPrefix(op.name, "enqueue") || op.name == "tick" || op.name == "replace" || op.name == "plan" || op.name == "announce" || op.name == "put" || strings.HasPrefix(op.name, "past") || op.name == "relay"; goesIn {
			if !redis.IsOOMError(err) {
				t.Errorf("%s out of memory: %v", op.name, err)
			}
			r.unchanged(op.name+" out of memory", before)
		} else if err != nil {
			t.Errorf("%s out of memory: %v", op.name, err)
		} else if len(differences(before, r.dump())) == 0 && op.name != "resume" && op.name != "resume an entry" && op.name != "remove" { // of what it has paused; the queue is in use
			t.Errorf("%s out of memory did nothing", op.name)
		}
		r.must(rdb.ConfigSet(bg, "maxmemory", "0").Err())
		if err := op.call(r, got); err != nil && op.name != "reclaim" { // it was done
			t.Errorf("%s with memory again: %v", op.name, err)
		}
	}
}

// A claim whose reply was lost, made again when memory is full, is answered: it registers its
// session.
func TestClaimAgainOutOfMemory(t *testing.T) {
	t.Parallel()
	r := newQueue(t, redistest.New(t, "--maxmemory-policy", "noeviction").Client())
	r.open()
	r.put("a")
	request := &ClaimRequest{Session: r.session, Want: 2, Address: r.address()}
	r.lane.Next()
	first, err := r.Sessions().Claim(bg, r.lane, request)
	r.must(err)
	r.must(r.rdb.Del(bg, r.keys.Idle).Err())
	r.must(r.rdb.ConfigSet(bg, "maxmemory", "1").Err())
	again, err := r.Sessions().Claim(bg, r.lane, request)
	r.must(err)
	equal(t, "claimed again", ids(again.Deliveries), ids(first.Deliveries))
	same(t, "registered", r.registered(), true)
	r.must(r.rdb.ConfigSet(bg, "maxmemory", "0").Err())
}

// A server that has forgotten the scripts is told them again.
func TestNoScript(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	for _, op := range operations() {
		r := newQueue(t, rdb)
		got := op.furnish(r)
		r.must(rdb.ScriptFlush(bg).Err())
		if err := op.call(r, got); err != nil {
			t.Errorf("%s after SCRIPT FLUSH: %v", op.name, err)
		}
	}
}

// A server that loads its data answers later, or is given up with nothing changed.
func TestLoading(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	script := func(cmd []string) bool { return strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") }
	const loading = "-LOADING Redis is loading the dataset in memory"
	for _, op := range operations() {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, srv.Addr())
			r := newQueue(t, proxy.Client())
			got := op.furnish(r)
			before := r.dump()
			proxy.Reply(script, loading, -1)
			if err := op.call(r, got); !redis.IsLoadingError(err) {
				t.Errorf("while it loads: %v", err)
			}
			proxy.Reset()
			r.unchanged("a call while it loads", before)
			proxy.Reply(script, loading, 2)
			if err := op.call(r, got); err != nil {
				t.Errorf("while it loads for a moment: %v", err)
			}
		})
	}
}

// Connections that were dropped meanwhile are replaced.
func TestDroppedConnections(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	rdb := proxy.Client()
	for _, op := range operations() {
		r := newQueue(t, rdb)
		got := op.furnish(r)
		proxy.Sever()
		if err := op.call(r, got); err != nil {
			t.Errorf("%s on dropped connections: %v", op.name, err)
		}
	}
}

// A server that died and came back with its append-only file has all that was answered.
func TestCrashedServer(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	r := newQueue(t, srv.Client())
	got := r.furnish()
	before := r.dump()
	srv.Kill()
	if _, _, err := r.Sessions().Renew(bg, r.session, time.Minute, ""); err == nil {
		t.Error("a server that is dead answered")
	}
	srv.Restart()
	r.unchanged("a crash of the server", before)
	r.settled(settlement(got[0], Completed))
}
