package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

// A setting is one of a queue that users can set.
type setting struct {
	name   string // as in inspect.Setting, or "Slots"
	text   string // as on the page of the queue
	says   string // what it does
	risk   bool   // a lower value drops jobs
	is     func(q *inspect.Queue) string
	fields func(q *inspect.Queue) []field
	set    func(in *input) change
}

// A change sets a setting of a queue to a value that was read before.
type change func(ctx context.Context, ins *inspect.Inspector, queue string) error

// to returns a function that reads a value from a form, and returns the change to it.
func to[T any](read func(*input) T, set func(*inspect.Inspector, context.Context, string, T) error) func(*input) change {
	return func(in *input) change {
		value := read(in)
		return func(ctx context.Context, ins *inspect.Inspector, queue string) error {
			return set(ins, ctx, queue, value)
		}
	}
}

// A field is one that a user fills in.
type field struct{ Name, Label, Value string }

var settings = []setting{
	{
		name: "Limits", text: "Limit", says: "So many jobs of the queue run at a time and start, across all workers. Jobs that run go on.",
		is: func(q *inspect.Queue) string { return limitText(q.Limits) }, fields: func(q *inspect.Queue) []field { return limitFields(q.Limits) },
		set: to((*input).limits, (*inspect.Inspector).SetLimits),
	},
	{
		name: "GroupLimits", text: "Of each group", says: "So many jobs of each group run at a time and start, unless the group has limits of its own. Jobs that run go on.",
		is: func(q *inspect.Queue) string { return limitText(q.GroupLimits) }, fields: func(q *inspect.Queue) []field { return limitFields(q.GroupLimits) },
		set: to((*input).limits, (*inspect.Inspector).SetGroupLimits),
	},
	{
		name: "MaxLength", text: "Maximum length", says: "An enqueue that would make the queue longer is refused. Jobs that it has stay.",
		is: func(q *inspect.Queue) string {
			if q.MaxLength == 0 {
				return "none"
			}
			return counted(int64(q.MaxLength), "job")
		},
		fields: func(q *inspect.Queue) []field {
			return []field{{"length", "Jobs that haven't ended", filled(int64(q.MaxLength))}}
		},
		set: to(func(in *input) int { return int(in.number("length")) }, (*inspect.Inspector).SetMaxLength),
	},
	{
		name: "Slots", text: "Slots of each worker", says: "Each worker runs so many jobs of the queue at a time. Empty: as the worker's Config says.",
		is: func(q *inspect.Queue) string {
			if q.Slots == 0 {
				return "as its Config says"
			}
			return commas(int64(q.Slots))
		},
		fields: func(q *inspect.Queue) []field { return []field{{"slots", "Slots", filled(int64(q.Slots))}} },
		set:    to(func(in *input) int { return int(in.number("slots")) }, (*inspect.Inspector).SetSlots),
	},
	{
		name: "Retention", text: "Keeps dead and cancelled jobs", says: "Beyond that, the oldest are dropped. They can't be had back. A field that is empty has its default.", risk: true,
		is: func(q *inspect.Queue) string { return retentionText(q.Retention) }, fields: func(q *inspect.Queue) []field { return retentionFields(q.Retention) },
		set: to((*input).retention, (*inspect.Inspector).SetRetention),
	},
	{
		name: "CompletedRetention", text: "Keeps completed jobs", says: "Beyond that, the oldest are dropped. They can't be had back. A field that is empty has its default. If all are empty, none is kept.", risk: true,
		is: func(q *inspect.Queue) string {
			if q.CompletedRetention == (signalbox.Retention{}) {
				return "no"
			}
			return retentionText(q.CompletedRetention)
		},
		fields: func(q *inspect.Queue) []field { return retentionFields(q.CompletedRetention) },
		set:    to((*input).retention, (*inspect.Inspector).SetCompletedRetention),
	},
	{
		name: "CopyDead", text: "Copies dead jobs to", says: "Each job that dies from now on is copied to that queue. The dead job stays where it is. Empty: no job is copied.",
		is:     func(q *inspect.Queue) string { return cmp.Or(clean(q.CopyDead, 100), "nowhere") },
		fields: func(q *inspect.Queue) []field { return []field{{"to", "Queue", q.CopyDead}} },
		set:    to((*input).queue, (*inspect.Inspector).SetCopyDead),
	},
}

// settingOf returns the setting of that name, or nil.
func settingOf(name string) *setting {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return &settings[i]
}

// limitFields are those of limits.
func limitFields(l signalbox.Limits) []field {
	return []field{
		{"running", "Jobs that run at a time", filled(int64(l.Running))},
		{"jobs", "Jobs that start in each time", filled(int64(l.Rate.Jobs))},
		{"per", "That time, as 1s or 5m", filledSpan(l.Rate.Per)},
		{"burst", "Of them at once", filled(int64(l.Rate.Burst))},
	}
}

// retentionFields are those of a retention.
func retentionFields(r signalbox.Retention) []field {
	return []field{{"count", "Jobs", filled(r.Jobs)}, {"bytes", "Bytes", filled(r.Bytes)}, {"age", "Age, as 30m or 72h", filledSpan(r.Age)}}
}

// filled returns a number as a field has it: "" is 0.
func filled(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// filledSpan returns a duration as a field has it: "" is 0.
func filledSpan(d time.Duration) string {
	if d == 0 {
		return ""
	}
	text := d.String()
	for _, rest := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, rest) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// An input reads the fields of a form. It keeps what is wrong with them.
type input struct {
	form url.Values
	sees func(queue string) bool
	err  error
}

// queue returns the name of a queue that the user sees, or "".
func (in *input) queue() string {
	name := strings.TrimSpace(in.form.Get("to"))
	if name != "" && !in.sees(name) {
		in.err = &refusal{http.StatusForbidden, "You may not do that", "You don't see a queue of that name. Nothing was changed."}
	}
	return name
}

// number returns a whole number. An empty field is 0.
func (in *input) number(name string) int64 {
	text := strings.TrimSpace(in.form.Get(name))
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		in.err = cmp.Or(in.err, wrongValue(fmt.Sprintf("%.40q is no whole number.", text)))
	}
	return n
}

// span returns a duration. An empty field is 0.
func (in *input) span(name string) time.Duration {
	text := strings.TrimSpace(in.form.Get(name))
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		in.err = cmp.Or(in.err, wrongValue(fmt.Sprintf("%.40q is no duration. Write 90s, 5m or 72h.", text)))
	}
	return d
}

// limits returns the limits of limitFields.
func (in *input) limits() signalbox.Limits {
	return signalbox.Limits{
		Running: int(in.number("running")),
		Rate:    signalbox.Rate{Jobs: int(in.number("jobs")), Per: in.span("per"), Burst: int(in.number("burst"))},
	}
}

// retention returns the retention of retentionFields.
func (in *input) retention() signalbox.Retention {
	return signalbox.Retention{Jobs: in.number("count"), Bytes: in.number("bytes"), Age: in.span("age")}
}

// wrongValue refuses a form that has a value which can't be one.
func wrongValue(text string) error {
	return &refusal{http.StatusBadRequest, "It can't be set to that", text + " Nothing was changed."}
}
