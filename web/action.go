package web

import (
	"net/url"
	"slices"
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
