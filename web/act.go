package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

const (
	mostForm = 64 << 10 // bytes of a form
	mostWhy  = 500      // bytes of a reason
)

// holdTimes are for how long a queue or a group may be held back.
var holdTimes = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

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
	mark := v.PostForm.Get("once")
	if err := v.sent.take(mark, time.Now()); err != nil {
		return t, "", err
	}
	defer func() {
		if errors.Is(err, signalbox.ErrInvalid) { // nothing was done: the form can be corrected
			v.sent.giveBack(mark)
		}
		err = v.refused(err)
	}()
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
	return t, id, err
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
