package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

// An Action is something that a user wants to do by a page.
type Action struct {
	What    What
	Queue   string // is empty only if it is about a worker
	Job     string // the ID of the job; "" if it is about none
	Group   string // the key of the group; "" if it is about none
	Entry   string // the name of the cron entry; "" if it is about none
	Batch   string // the ID of the batch; "" if it is about none
	Setting string // "Slots", or the name of the setting as [inspect.Setting] has it; "" if it is about none
	Worker  string // the ID of the worker; "" if it is about none
}

// A What says what an [Action] does.
type What string

// What users can do. Package inspect describes each.
const (
	Pause   What = "pause"   // a queue, a group or a cron entry
	Resume  What = "resume"  // the same
	Hold    What = "hold"    // back a queue or a group, for at most 24 h
	Release What = "release" // end that
	Run     What = "run"     // a cron entry now
	Retry   What = "retry"   // a job that is scheduled, or has ended: it is ready now
	Cancel  What = "cancel"  // a job that hasn't ended, or a batch that isn't over
	Archive What = "archive" // a job that waits: it is dead
	Delete  What = "delete"  // a job that isn't running
	Forget  What = "forget"  // a cron entry that no scheduler has any more
	Quiet   What = "quiet"   // a worker: it takes no more jobs
	Unquiet What = "unquiet" // end that
	Stop    What = "stop"    // a worker: it ends
	Remove  What = "remove"  // a queue without jobs and workers
	Repair  What = "repair"  // what the doctor finds in a queue, as far as it can be
	Set     What = "set"     // a setting of a queue, or the limits of a group
	Reset   What = "reset"   // the same, to what the Config of workers says
)

const (
	mostForm = 64 << 10  // bytes of a form
	formAge  = time.Hour // how long one may be sent
	mostWhy  = 500       // bytes of a reason
	mostSent = 10_000    // forms that are remembered
)

// holdTimes are for how long a queue or a group may be held back.
var holdTimes = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// A deed is how an action looks to a user.
type deed struct {
	what   What
	on     string // "queue", "group", "entry", "batch", "setting", "worker" or "job"
	text   string // of the button
	says   string // what happens
	done   string // what has happened
	why    string // what becomes of the reason that the user may give; "": none is asked for
	risk   bool   // it can't be taken back
	states []signalbox.State
}

var deeds = []deed{
	{what: Pause, on: "queue", text: "Pause", says: "No worker gets a job of it until somebody resumes it. Jobs that run go on.", done: "is paused"},
	{what: Resume, on: "queue", text: "Resume", says: "Workers get its jobs again.", done: "is resumed"},
	{what: Hold, on: "queue", text: "Hold back", says: "None of its jobs starts for this time. Jobs that run go on.", done: "is held back"},
	{what: Release, on: "queue", text: "End the hold", says: "Its jobs may start again at once.", done: "is not held back any more"},
	{what: Pause, on: "group", text: "Pause", says: "No job of the group starts until somebody resumes it. Jobs that run go on.", done: "is paused"},
	{what: Resume, on: "group", text: "Resume", says: "Jobs of the group start again.", done: "is resumed"},
	{what: Hold, on: "group", text: "Hold back", says: "No job of the group starts for this time. Jobs that run go on.", done: "is held back"},
	{what: Release, on: "group", text: "End the hold", says: "Jobs of the group may start again at once.", done: "is not held back any more"},
	{what: Pause, on: "entry", text: "Pause", says: "Its ticks pass without a job until somebody resumes it. They are not made up for.", done: "is paused"},
	{what: Resume, on: "entry", text: "Resume", says: "Its next tick enqueues a job again.", done: "is resumed"},
	{what: Run, on: "entry", text: "Run now", says: "One job more is enqueued at once. It is no tick: the next tick comes as usual.", done: "was run"},
	{what: Forget, on: "entry", text: "Forget", says: "Redis forgets its description, its last tick and its pause. Its jobs stay. A scheduler that has the entry and starts again describes it again.", done: "is forgotten", risk: true},
	{what: Remove, on: "queue", text: "Remove", says: "It is removed with its statistics, unless something keeps it. A later job or worker makes it anew.", done: "is removed", risk: true},
	{what: Repair, on: "queue", text: "Repair", says: "The doctor looks at the queue again, and repairs what can be repaired and is still so. No job is lost by that. One may run a second time.", done: "was looked at", risk: true},
	{what: Quiet, on: "worker", text: "Quiet", says: "It takes no more jobs of any queue until somebody ends that. Jobs that it has go on.", done: "takes no more jobs"},
	{what: Unquiet, on: "worker", text: "Take jobs", says: "It takes jobs again.", done: "takes jobs again"},
	{what: Stop, on: "worker", text: "Stop", says: "It takes no more jobs, its handlers have its DrainTimeout to end what they do, and then it ends. That can't be taken back. What starts its process again starts another worker.", done: "was told to end", risk: true},
	{what: Set, on: "setting", text: "Change", says: "It counts within a second or so, until somebody changes it or a worker comes with a new value in its Config.", done: "is set"},
	{what: Reset, on: "setting", text: "Reset", says: "It is again what the Config of the workers says, in place of what an operator has set. If no worker has said so for three minutes, it is removed.", done: "is reset"},
	{what: Set, on: "group", text: "Change the limits", says: "So many jobs of the group run at a time and start. Empty: as for all groups. -1: no limit. Jobs that run go on.", done: "has these limits"},
	{what: Reset, on: "group", text: "Reset the limits", says: "Its limits are again what the Config of the workers says of it. If none does, it has no limits of its own.", done: "has its limits of the Config"},
	{what: Retry, on: "job", text: "Run now", says: "It is ready at once, before its time.", done: "is ready", states: []signalbox.State{signalbox.StateScheduled}},
	{what: Retry, on: "job", text: "Retry", says: "It is ready at once, and begins anew: its attempts and crashes count from 0.", done: "is ready", states: []signalbox.State{signalbox.StateDead, signalbox.StateCancelled}},
	{what: Retry, on: "job", text: "Run again", says: "It is ready at once, and begins anew. It has completed before.", done: "is ready", states: []signalbox.State{signalbox.StateCompleted}},
	{what: Cancel, on: "batch", text: "Cancel", says: "Nobody adds to it any more. Its members that wait end cancelled, and nothing is kept of them. Those that run are told to end. What waits for its success is cancelled; what waits for its end runs. That can't be taken back.", done: "is cancelled", why: "for the log", risk: true},
	{what: Cancel, on: "job", text: "Cancel", says: "It ends cancelled, and doesn't run. It can be retried.", done: "is cancelled", why: "for its last error", states: []signalbox.State{signalbox.StateScheduled, signalbox.StateReady, signalbox.StateAwaiting}},
	{what: Cancel, on: "job", text: "Cancel", says: "The context of its handler ends. The job ends cancelled when the handler has returned.", done: "was told to end", why: "for its last error", states: []signalbox.State{signalbox.StateRunning}},
	{what: Archive, on: "job", text: "Archive", says: "It is dead, and doesn't run. It is kept as dead jobs are, and can be retried. Nobody is told of its death.", done: "is archived", why: "for its last error", states: []signalbox.State{signalbox.StateScheduled, signalbox.StateReady, signalbox.StateAwaiting}},
	{what: Delete, on: "job", text: "Delete", says: "All that Redis has of it is deleted. That can't be taken back.", done: "is deleted", risk: true, states: []signalbox.State{signalbox.StateScheduled, signalbox.StateReady, signalbox.StateAwaiting, signalbox.StateDead, signalbox.StateCancelled, signalbox.StateCompleted}},
}

// on says what an action is about, and its name.
func (a *Action) on() (kind, name string) {
	switch {
	case a.Job != "":
		return "job", a.Job
	case a.Group != "":
		return "group", a.Group
	case a.Entry != "":
		return "entry", a.Entry
	case a.Batch != "":
		return "batch", a.Batch
	case a.Setting != "":
		return "setting", a.Setting
	case a.Worker != "":
		return "worker", a.Worker
	}
	return "queue", a.Queue
}

// link returns the address of the page that asks before the action.
func (a *Action) link() string {
	return link("act", "do", string(a.What), "queue", a.Queue, "job", a.Job, "group", a.Group, "entry", a.Entry, "batch", a.Batch, "setting", a.Setting, "worker", a.Worker)
}

// back returns the page that the action is of, and what to call it.
func (a *Action) back() (to, text string) {
	switch kind, _ := a.on(); kind {
	case "job":
		if a.What == Delete {
			return link("queue", "name", a.Queue), "the queue"
		}
		return link("job", "queue", a.Queue, "id", a.Job), "the job"
	case "group":
		return link("groups", "queue", a.Queue), "the groups"
	case "entry":
		return link("cron"), "the cron entries"
	case "batch":
		return flowLink(a.Queue, a.Batch), "the batch"
	case "worker":
		return link("workers"), "the workers"
	}
	switch a.What {
	case Remove:
		return "./", "the queues"
	case Repair:
		return link("doctor", "queue", a.Queue), "the doctor"
	}
	return link("queue", "name", a.Queue), "the queue"
}

// actionOf returns the action that a form or an address says.
func actionOf(form url.Values) (Action, error) {
	a := Action{What: What(form.Get("do")), Queue: form.Get("queue"), Job: form.Get("job"), Group: form.Get("group"), Entry: form.Get("entry"), Batch: form.Get("batch"), Setting: form.Get("setting"), Worker: form.Get("worker")}
	names := 0
	for _, name := range []string{a.Job, a.Group, a.Entry, a.Batch, a.Setting, a.Worker} {
		if name != "" {
			names++
		}
	}
	kind, _ := a.on()
	if (a.Queue == "") != (kind == "worker") || names > 1 || a.Setting != "" && settingOf(a.Setting) == nil || !slices.ContainsFunc(deeds, func(d deed) bool { return d.what == a.What && d.on == kind }) {
		return a, mistake("There is no such action.")
	}
	return a, nil
}

// A refusal says why nothing was done, in words for the user.
type refusal struct {
	status      int
	title, text string
}

func (r *refusal) Error() string { return "web: " + r.title }

// may returns why the user may not do something. Whether that is there is not said then.
func (v *visit) may(a Action) error {
	if v.cfg.Authorize == nil {
		return errNoPage
	}
	if kind, _ := a.on(); (kind == "worker" || a.What == Repair) && !v.scope.All { // a worker may have queues that the user doesn't see
		return errNoPage
	} else if kind != "worker" && !v.scope.sees(a.Queue) {
		return inspect.ErrNoQueue
	}
	if err := v.cfg.Authorize(v.Request, a); err != nil {
		return &refusal{http.StatusForbidden, "You may not do that", clean(err.Error(), 500)}
	}
	return nil
}

// A target is what an action is about, as it is now.
type target struct {
	deed   deed
	name   string  // what to call it
	fields []field // that the user fills in
	seen   string  // how it is: another if it has moved
	state  string  // in words
}

// target reads what an action is about. The error says so if the action is not for what it is now.
func (v *visit) target(ctx context.Context, a Action) (target, error) {
	var t target
	var fits []What
	var is []any
	var state signalbox.State
	kind, own := a.on()
	t.name = own
	held := func(paused bool, until time.Time) {
		fits = []What{Pause, Hold}
		if t.state = "not paused"; paused {
			fits[0], t.state = Resume, "paused"
		}
		if until.After(v.now()) {
			fits = append(fits, Release)
			t.state += ", held back until " + until.UTC().Format("15:04:05") + " UTC"
		}
		is = append(is, paused, until.UnixMicro())
	}
	switch kind {
	case "queue":
		q, err := v.ins.Queue(ctx, a.Queue)
		if err != nil {
			return t, err
		}
		held(q.Paused, q.HeldUntil)
		if fits = append(fits, Repair); unused(&q) {
			fits = append(fits, Remove)
		}
		is = append(is, q.PausedSince.UnixMicro())
	case "group":
		groups, err := v.ins.GroupsOf(ctx, a.Queue, a.Group)
		if err != nil {
			return t, err
		}
		if len(groups) == 0 {
			return t, &refusal{http.StatusNotFound, "The queue has no such group now", "None of its jobs waits or runs, and it has no limits of its own."}
		}
		paused, until := false, time.Time{}
		for _, g := range groups {
			paused = paused || g.Paused
			if g.HeldUntil.After(until) {
				until = g.HeldUntil
			}
			is = append(is, g.PausedSince.UnixMicro())
		}
		held(paused, until)
		fits = append(fits, Set, Reset)
		if a.What == Set || a.What == Reset {
			all, err := v.ins.LimitsOf(ctx, a.Queue)
			if err != nil {
				return t, err
			}
			t.state, is = "limited so: "+ownLimits(all[a.Group]), []any{all[a.Group]}
			t.fields = limitFields(all[a.Group])
		}
	case "worker":
		workers, err := v.ins.Workers(ctx)
		i := slices.IndexFunc(workers, func(w inspect.Worker) bool { return w.ID == a.Worker })
		switch {
		case i < 0 && err != nil:
			return t, err
		case i < 0:
			return t, errNoWorker
		}
		w := &workers[i]
		fits, t.state = workerFits(w.Quiet, w.Stopping), "taking jobs"
		if w.Stopping {
			t.state = "ending"
		} else if w.Quiet {
			t.state = "quiet"
		}
		is = append(is, w.Quiet, w.Stopping)
	case "setting":
		q, err := v.ins.Queue(ctx, a.Queue)
		if err != nil {
			return t, err
		}
		if !v.scope.sees(q.CopyDead) {
			q.CopyDead = ""
		}
		s := settingOf(a.Setting)
		t.name, t.state, t.fields = s.text, s.is(&q), s.fields(&q)
		fits, is = []What{Set}, []any{t.fields}
		if a.Setting != "Slots" { // no Config says those of other workers
			fits = append(fits, Reset)
		}
	case "entry":
		e, err := v.ins.Entry(ctx, a.Queue, a.Entry)
		if errors.Is(err, inspect.ErrNoEntry) {
			return t, &refusal{http.StatusNotFound, "There is no such cron entry", "No scheduler has described it, or it was forgotten."}
		}
		if err != nil {
			return t, err
		}
		fits, t.state = []What{Pause, Run}, "ticks"
		if e.Paused {
			fits[0], t.state = Resume, "paused"
		}
		if e.Gone {
			fits = append(fits, Forget)
			t.state += ", and no scheduler has it"
		}
		is = append(is, e.Paused, e.PausedSince.UnixMicro(), e.Spec)
	case "batch":
		f, err := v.ins.Flow(ctx, a.Queue, a.Batch)
		if err != nil {
			return t, err
		}
		t.state = fmt.Sprintf("%s, with %s of %s open", f.State(), commas(f.Open), counted(f.Total, "job"))
		if !f.Over && !f.Cancelled {
			fits = []What{Cancel}
		}
		is = append(is, f.CreatedAt.UnixMicro(), f.Over, f.Cancelled) // its members may move
	case "job":
		j, err := v.ins.Job(ctx, a.Queue, a.Job)
		if err != nil {
			return t, err
		}
		state, t.state = j.State, string(j.State)
		is = append(is, j.State, j.DueAt.UnixMicro(), j.EndedAt.UnixMicro(), j.Since.UnixMicro(), j.Token, j.Failed, j.Crashes)
	}
	i := slices.IndexFunc(deeds, func(d deed) bool {
		return d.what == a.What && d.on == kind && (kind != "job" && slices.Contains(fits, a.What) || slices.Contains(d.states, state))
	})
	if i < 0 {
		return t, &refusal{http.StatusConflict, "That can't be done now", "It is " + t.state + "."}
	}
	t.deed = deeds[i]
	if a.What != Set {
		t.fields = nil
	} else if s := settingOf(a.Setting); s != nil {
		t.deed.says, t.deed.risk = s.says+" "+t.deed.says, s.risk
	}
	sum := sha256.Sum256(fmt.Append(nil, is...))
	t.seen = hex.EncodeToString(sum[:8])
	return t, nil
}

// errNoWorker refuses what is about a worker that is gone.
var errNoWorker = &refusal{http.StatusNotFound, "There is no such worker", "It has ended, or never was there."}

// unused reports whether a queue has no jobs and no workers.
func unused(q *inspect.Queue) bool {
	return q.Length()+q.Dead+q.Cancelled+q.Completed == 0 && len(q.Workers) == 0
}

// workerFits returns what can be done with a worker.
func workerFits(quiet, stopping bool) []What {
	switch {
	case stopping:
		return nil
	case quiet:
		return []What{Unquiet, Stop}
	}
	return []What{Quiet, Stop}
}

// An actPage asks before something is done.
type actPage struct {
	Action
	Kind, Name string
	Button     string
	Says       string
	State      string
	Risk       bool
	Why        string // what becomes of a reason; "": none is asked for
	Most       int    // bytes of it
	Holds      []tab  // times to choose, with seconds as Count
	Fields     []field
	Levers     []lever // what can be done instead
	Seen, Once string
	Back       string
	BackText   string
	Command    string
}

// act is the page that asks before an action.
func (v *visit) act() (answer, error) {
	if v.cfg.Authorize == nil {
		return answer{}, errNoPage
	}
	a, err := actionOf(v.URL.Query())
	if err != nil {
		return answer{}, err
	}
	if err := v.may(a); err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(v.Context(), lookBound)
	defer cancel()
	t, err := v.target(ctx, a)
	if err != nil {
		return answer{}, err
	}
	p := &actPage{Action: a, Button: t.deed.text, Says: t.deed.says, State: t.state, Risk: t.deed.risk, Why: t.deed.why, Most: mostWhy, Seen: t.seen, Once: newOnce(time.Now())}
	p.Kind, _ = a.on()
	p.Name, p.Fields = t.name, t.fields
	if a.What == Set && a.Setting != "Slots" {
		p.Levers = v.levers(a, Reset)
	}
	if p.Kind == "entry" {
		p.Kind = "cron entry"
	}
	p.Back, p.BackText = a.back()
	if a.What == Hold {
		for _, d := range holdTimes {
			p.Holds = append(p.Holds, tab{Name: span(d), Count: strconv.Itoa(int(d.Seconds())), Here: d == holdTimes[1]})
		}
	}
	return answer{name: "act", title: p.Button + " " + clean(p.Name, 100), queue: a.Queue, body: p, still: true}, nil
}

// do does what a form says, once.
func (v *visit) do() (answer, error) {
	a, err := v.form()
	var r *refusal
	var t target
	var id string
	if err == nil {
		t, id, err = v.perform(a)
	}
	what := []slog.Attr{slog.String("user", v.user()), slog.String("do", string(a.What)), slog.String("queue", a.Queue)}
	kind, own := a.on()
	if kind != "queue" {
		what = append(what, slog.String(kind, own))
	}
	for _, f := range t.fields {
		what = append(what, slog.String(f.Name, clean(v.PostForm.Get(f.Name), 200)))
	}
	if why := v.PostForm.Get("why"); why != "" {
		what = append(what, slog.String("why", clean(why, mostWhy)))
	}
	switch {
	case err == nil:
		v.cfg.logger().LogAttrs(v.Context(), slog.LevelInfo, "web: a user acted", what...)
	case errors.As(err, &r):
		v.cfg.logger().LogAttrs(v.Context(), slog.LevelWarn, "web: an action was refused", append(what, slog.String("reason", r.title))...)
		return answer{}, err
	default:
		v.cfg.logger().LogAttrs(v.Context(), slog.LevelWarn, "web: an action failed", append(what, slog.String("error", err.Error()))...)
		return answer{}, err
	}
	v.looks.forget()
	m := message{Arm: "clear", Title: clean(t.name, 100) + " " + t.deed.done}
	m.To, m.ToText = a.back()
	if a.What == Run {
		m.To, m.ToText = link("job", "queue", a.Queue, "id", id), "the job"
	}
	return answer{name: "message", title: m.Title, queue: a.Queue, body: m, still: true}, nil
}

// form reads a form, and checks where it is from.
func (v *visit) form() (Action, error) {
	if err := http.NewCrossOriginProtection().Check(v.Request); err != nil {
		return Action{}, &refusal{http.StatusForbidden, "Nothing was done", "The form was sent by a page of another origin."}
	}
	if err := v.ParseForm(); err != nil {
		return Action{}, mistake("The form can't be read.")
	}
	return actionOf(v.PostForm)
}

// perform does an action: the user may, the form is sent for the first time, and what it is about has not moved since. The ID is
// that of the job of a cron entry that was run.
func (v *visit) perform(a Action) (t target, id string, err error) {
	if err := v.may(a); err != nil {
		return t, "", err
	}
	ctx, cancel := context.WithTimeout(v.Context(), lookBound)
	defer cancel()
	t, err = v.target(ctx, a)
	if err != nil {
		return t, "", err
	}
	if t.seen != v.PostForm.Get("seen") {
		return t, "", &refusal{http.StatusConflict, "It has changed since you looked", "It is " + t.state + " now. Nothing was done: look again."}
	}
	hold := time.Duration(0)
	if a.What == Hold {
		seconds, _ := strconv.Atoi(v.PostForm.Get("for"))
		if hold = time.Duration(seconds) * time.Second; !slices.Contains(holdTimes, hold) {
			return t, "", mistake("There is no such time to hold back.")
		}
	}
	why := v.PostForm.Get("why")
	if len(why) > mostWhy {
		return t, "", mistake(fmt.Sprintf("The reason has %d bytes: at most %d are allowed.", len(why), mostWhy))
	}
	var set change
	in := &input{form: v.PostForm, sees: v.scope.sees}
	switch {
	case a.What == Set && a.Setting != "":
		set = settingOf(a.Setting).set(in)
	case a.What == Set:
		l := in.limits()
		set = func(ctx context.Context, ins *inspect.Inspector, queue string) error {
			return ins.SetLimitsOf(ctx, queue, a.Group, l)
		}
	}
	if in.err != nil {
		return t, "", in.err
	}
	if err := v.sent.take(v.PostForm.Get("once"), time.Now()); err != nil {
		return t, "", err
	}
	switch kind, _ := a.on(); kind + " " + string(a.What) {
	case "queue pause":
		_, err = v.ins.Pause(ctx, a.Queue)
	case "queue resume":
		_, err = v.ins.Resume(ctx, a.Queue)
	case "group pause":
		_, err = v.ins.PauseGroup(ctx, a.Queue, a.Group)
	case "group resume":
		_, err = v.ins.ResumeGroup(ctx, a.Queue, a.Group)
	case "queue hold", "queue release", "group hold", "group release":
		_, err = v.ins.HoldBack(ctx, a.Queue, a.Group, hold)
	case "entry pause":
		_, err = v.ins.PauseEntry(ctx, a.Queue, a.Entry)
	case "entry resume":
		_, err = v.ins.ResumeEntry(ctx, a.Queue, a.Entry)
	case "entry run":
		id, err = v.ins.RunEntry(ctx, a.Queue, a.Entry)
	case "entry forget":
		err = v.ins.ForgetEntry(ctx, a.Queue, a.Entry)
	case "queue repair":
		t.deed.done, err = v.repair(ctx, a.Queue)
	case "queue remove":
		err = v.ins.RemoveQueue(ctx, a.Queue, inspect.Removal{})
	case "worker quiet":
		_, err = v.ins.Quiet(ctx, a.Worker)
	case "worker unquiet":
		_, err = v.ins.Unquiet(ctx, a.Worker)
	case "worker stop":
		_, err = v.ins.Stop(ctx, a.Worker)
	case "setting set", "group set":
		err = set(ctx, v.ins, a.Queue)
	case "setting reset":
		_, err = v.ins.Reset(ctx, a.Queue, a.Setting)
	case "group reset":
		_, err = v.ins.ResetLimitsOf(ctx, a.Queue, a.Group)
	case "batch cancel":
		err = v.cancelFlow(ctx, a.Queue, a.Batch)
	default:
		_, err = v.ins.Do(ctx, a.Queue, a.Job, map[What]inspect.Action{
			Retry: inspect.Retry{}, Cancel: inspect.Cancel{Why: cmp.Or(why, "cancelled by an operator")}, Archive: inspect.Archive{Why: cmp.Or(why, "by an operator")}, Delete: inspect.Delete{},
		}[a.What])
	}
	return t, id, v.refused(err)
}

// cancelFlow cancels a batch. If its members are too many to end them while somebody waits, workers end the others.
func (v *visit) cancelFlow(ctx context.Context, queue, id string) error {
	bound, cancel := context.WithTimeout(ctx, lookBound/2)
	defer cancel()
	_, err := v.ins.CancelFlow(bound, queue, id)
	if err == nil || bound.Err() == nil {
		return err
	}
	check, stop := context.WithTimeout(context.WithoutCancel(ctx), lookBound/2)
	defer stop()
	if f, lost := v.ins.Flow(check, queue, id); lost == nil && f.Cancelled {
		return nil
	}
	return err
}

// refused returns the refusal that an error of inspect is.
func (v *visit) refused(err error) error {
	var used *inspect.InUseError
	switch {
	case errors.Is(err, inspect.ErrState):
		return &refusal{http.StatusConflict, "It can't be done in this state", "It has moved meanwhile, or another job is in its way. Nothing was done: look again."}
	case errors.Is(err, inspect.ErrInBatch):
		return &refusal{http.StatusConflict, "Its batch doesn't let it run again", "The batch was cancelled, or what the job waited for can't come any more: run the members again that haven't completed. Nothing was done."}
	case errors.Is(err, inspect.ErrKeyTaken):
		return &refusal{http.StatusConflict, "Another job has its unique key", "Nothing was done."}
	case errors.Is(err, inspect.ErrNoWorker):
		return errNoWorker
	case errors.As(err, &used):
		text := "Who runs Signalbox can see why." // a reason may name another queue
		if v.scope.All {
			text = clean(strings.Join(used.Reasons, "; "), 1000) + "."
		}
		return &refusal{http.StatusConflict, "The queue is in use", text + " Nothing was removed."}
	case errors.Is(err, signalbox.ErrInvalid):
		return wrongValue(clean(strings.TrimPrefix(err.Error(), "inspect: "), 500) + ".")
	}
	return err
}

// user returns the name of the user, for the log.
func (v *visit) user() string {
	if v.cfg.User == nil {
		return "not known"
	}
	return clean(v.cfg.User(v.Request), 200)
}

// logger returns where to log.
func (c *Config) logger() *slog.Logger {
	if c.Logger == nil {
		return slog.Default()
	}
	return c.Logger
}

// newOnce returns the mark of a form: random, with the time when it was made.
func newOnce(at time.Time) string { return strconv.FormatInt(at.Unix(), 36) + "-" + rand.Text() }

// A once remembers the forms that were sent in the last hour, so that none counts twice. Other processes don't know of them.
type once struct {
	mu   sync.Mutex
	sent map[string]time.Time // until when a form is remembered
}

var errAgain = &refusal{http.StatusConflict, "That was done already", "The form was sent before. Nothing was done now: look again."}

// take returns an error if the form was sent before, or is too old for that to be known.
func (o *once) take(mark string, now time.Time) error {
	text, random, ok := strings.Cut(mark, "-")
	made, err := strconv.ParseInt(text, 36, 64)
	if !ok || err != nil || len(random) < 20 || len(mark) > 100 {
		return mistake("The form has no mark: open its page again.")
	}
	at := time.Unix(made, 0)
	if now.Sub(at) > formAge || at.Sub(now) > formAge {
		return &refusal{http.StatusConflict, "The form is too old", "Nothing was done: open its page again."}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for m, until := range o.sent {
		if now.After(until) {
			delete(o.sent, m)
		}
	}
	if _, sent := o.sent[mark]; sent {
		return errAgain
	}
	if len(o.sent) >= mostSent {
		return &refusal{http.StatusTooManyRequests, "Too many actions in an hour", "Nothing was done. Use the command line."}
	}
	if o.sent == nil {
		o.sent = make(map[string]time.Time)
	}
	o.sent[mark] = at.Add(2 * formAge)
	return nil
}

// A lever is a link to the page that asks before an action.
type lever struct {
	Text, To string
	Risk     bool
}

// levers returns those of some actions that the user may do.
func (v *visit) levers(a Action, fits ...What) []lever {
	if v.cfg.Authorize == nil || v.away != nil {
		return nil
	}
	var list []lever
	for _, what := range fits {
		if a.What = what; v.may(a) == nil {
			kind, _ := a.on()
			i := slices.IndexFunc(deeds, func(d deed) bool { return d.what == what && d.on == kind })
			list = append(list, lever{deeds[i].text + "…", a.link(), deeds[i].risk})
		}
	}
	return list
}

// holdLevers returns the levers of a queue or a group.
func (v *visit) holdLevers(a Action, paused bool, until time.Time) []lever {
	fits := []What{Pause, Hold}
	if paused {
		fits[0] = Resume
	}
	if until.After(v.now()) {
		fits = append(fits, Release)
	}
	return v.levers(a, fits...)
}

// jobLevers returns the levers of a job.
func (v *visit) jobLevers(j *inspect.Job) []lever {
	var list []lever
	for _, d := range deeds {
		if slices.Contains(d.states, j.State) {
			for _, l := range v.levers(Action{Queue: j.Queue, Job: j.ID}, d.what) {
				l.Text = d.text + "…"
				list = append(list, l)
			}
		}
	}
	return list
}
