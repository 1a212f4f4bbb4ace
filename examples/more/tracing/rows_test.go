package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/examples/more/tracing/internal/jaeger"
)

// The attributes, with the names that people use in queries.
const (
	attrSystem      = "messaging.system"
	attrOperation   = "messaging.operation.name"
	attrType        = "messaging.operation.type"
	attrDestination = "messaging.destination.name"
	attrMessageID   = "messaging.message.id"
	attrClientID    = "messaging.client.id"
	attrBatch       = "messaging.batch.message_count"
	attrAddress     = "server.address"
	attrPort        = "server.port"
	attrError       = "error.type"
	attrKind        = "signalbox.job.kind"
	attrAttempt     = "signalbox.job.attempt"
	attrMaxAttempts = "signalbox.job.max_attempts"
	attrWait        = "signalbox.job.wait_ms"
	attrOutcome     = "signalbox.job.outcome"
	attrNextRun     = "signalbox.job.next_run"
	attrToken       = "signalbox.lock.fencing_token"
	attrLockOutcome = "signalbox.lock.outcome"
	attrLockWait    = "signalbox.lock.wait_ms"
	attrLockPolicy  = "signalbox.lock.policy"
	attrTick        = "signalbox.schedule.tick"
	attrLate        = "signalbox.schedule.late_ms"
	attrMissed      = "signalbox.schedule.missed"
)

// A want reports whether an attribute's value is right. v is nil if the attribute is missing.
type want func(s *story, sp *jaeger.Span, v any) bool

func is(x any) want { return func(_ *story, _ *jaeger.Span, v any) bool { return v == x } }

func missing(_ *story, _ *jaeger.Span, v any) bool { return v == nil }

func text(_ *story, _ *jaeger.Span, v any) bool {
	got, ok := v.(string)
	return ok && got != ""
}

func isTime(_ *story, _ *jaeger.Span, v any) bool {
	got, _ := v.(string)
	_, err := time.Parse(time.RFC3339Nano, got)
	return err == nil
}

func atLeast(n int64) want {
	return func(_ *story, _ *jaeger.Span, v any) bool {
		got, ok := v.(int64)
		return ok && got >= n
	}
}

// later accepts a time after the span's end, with an allowance for clocks and rounding.
func later(_ *story, sp *jaeger.Span, v any) bool {
	got, _ := v.(string)
	at, err := time.Parse(time.RFC3339Nano, got)
	return err == nil && at.After(sp.Start)
}

// attributes are the attributes that a span must have.
type attributes map[string]want

func (a attributes) and(more attributes) attributes {
	all := make(attributes, len(a)+len(more))
	for k, w := range a {
		all[k] = w
	}
	for k, w := range more {
		all[k] = w
	}
	return all
}

// onEach are the attributes of every messaging span.
var onEach = attributes{
	attrSystem:      is("signalbox"),
	attrDestination: func(s *story, _ *jaeger.Span, v any) bool { return v == s.queue },
	attrAddress:     func(s *story, _ *jaeger.Span, v any) bool { return v == s.redis.host },
	attrPort: func(s *story, _ *jaeger.Span, v any) bool {
		port, _ := strconv.ParseInt(s.redis.port, 10, 64)
		return v == port
	},
}

func operation(name, opType string) attributes {
	return attributes{attrOperation: is(name), attrType: is(opType)}
}

// aboutJob returns the attributes of a job's spans before its delivery. aboutDelivery returns
// those of its later spans.
func aboutJob(kind string, maxAttempts int64) attributes {
	return onEach.and(attributes{attrMessageID: text, attrKind: is(kind), attrMaxAttempts: is(maxAttempts)})
}

func aboutDelivery(kind string, maxAttempts, attempt int64) attributes {
	return aboutJob(kind, maxAttempts).and(attributes{attrAttempt: is(attempt), attrClientID: text})
}

// A row is a row of the table of spans, in one situation.
type row struct {
	name      string
	spans     func(s *story) []*jaeger.Span // returns the spans that the row describes
	count     int
	kind      string
	parent    func(s *story, sp *jaeger.Span) (parent *jaeger.Span, root bool)
	links     func(s *story, sp *jaeger.Span) []jaeger.Link // returns all links of the span; nil: none
	attrs     attributes
	errorType *regexp.Regexp // nil: the span is no error
}

func root(*story, *jaeger.Span) (*jaeger.Span, bool) { return nil, true }

// below accepts a parent with this name.
func below(name string) func(s *story, sp *jaeger.Span) (*jaeger.Span, bool) {
	return func(s *story, sp *jaeger.Span) (*jaeger.Span, bool) {
		for _, p := range s.named(strings.ReplaceAll(name, "Q", s.queue)) {
			if p.TraceID == sp.TraceID && p.SpanID == sp.ParentID {
				return p, false
			}
		}
		return nil, false
	}
}

// op returns an operation on the n-th job of a kind of request. which selects one of its spans,
// or all if it is negative.
func op(name, what string, n, which int) func(s *story) []*jaeger.Span {
	return func(s *story) []*jaeger.Span {
		return pick(s.of(name, s.job(what, n)), which)
	}
}

func pick(all []*jaeger.Span, which int) []*jaeger.Span {
	if which < 0 {
		return all
	}
	if which < len(all) {
		return all[which : which+1]
	}
	return nil
}

// ofAll returns an operation on all jobs of a kind of request.
func ofAll(name, what string) func(s *story) []*jaeger.Span {
	return func(s *story) []*jaeger.Span {
		var all []*jaeger.Span
		for _, id := range s.jobs[what] {
			all = append(all, s.of(name, id)...)
		}
		return all
	}
}

// inJob returns the spans of this name below the process spans of a job.
func inJob(name, what string, n int) func(s *story) []*jaeger.Span {
	return func(s *story) []*jaeger.Span {
		var all []*jaeger.Span
		for _, p := range s.of("process", s.job(what, n)) {
			all = append(all, s.under(p, name)...)
		}
		return all
	}
}

// acquired returns the n-th acquisition of the reports' lock, in the order of their ends. All of
// them succeed.
func acquired(n int) func(s *story) []*jaeger.Span {
	return func(s *story) []*jaeger.Span {
		var all []*jaeger.Span
		for i := range s.jobs["reports"] {
			all = append(all, inJob("lock acquire", "reports", i)(s)...)
		}
		slices.SortFunc(all, func(a, b *jaeger.Span) int { return a.End.Compare(b.End) })
		return pick(all, n)
	}
}

// toCreation returns the link to the span that created the job.
func toCreation(s *story, sp *jaeger.Span) []jaeger.Link {
	id, _ := sp.Attributes[attrMessageID].(string)
	if c := s.creation(id); c != nil {
		return []jaeger.Link{c.Link()}
	}
	return []jaeger.Link{{}} // no span has this link
}

// toAttempt returns the link to the n-th process span of the payment.
func toAttempt(n int) func(s *story, sp *jaeger.Span) []jaeger.Link {
	return func(s *story, _ *jaeger.Span) []jaeger.Link {
		if found := pick(s.of("process", s.job("payments", 0)), n); len(found) > 0 {
			return []jaeger.Link{found[0].Link()}
		}
		return []jaeger.Link{{}}
	}
}

// toLost returns the link to the attempt whose worker was killed. Its span was never sent, and is
// known only from the links. It is a sibling of the next attempt.
func toLost(s *story, sp *jaeger.Span) []jaeger.Link {
	created := toCreation(s, sp)[0]
	for _, l := range sp.Links {
		if l.TraceID == created.TraceID && s.byID[l] == nil {
			return []jaeger.Link{l}
		}
	}
	return []jaeger.Link{{}}
}

var bank = regexp.MustCompile(`bankError$`)

var rows = []row{
	{
		name: "enqueue", spans: op("enqueue", "orders", 0, -1), count: 1, kind: "PRODUCER", parent: below("POST /orders"),
		attrs: aboutJob("order.confirm", 25).and(operation("enqueue", "send")).and(attributes{attrAttempt: missing}),
	},
	{
		name: "create in bulk", spans: ofAll("create", "newsletters"), count: 3, kind: "PRODUCER", parent: below("POST /newsletters"),
		attrs: aboutJob("newsletter.send", 25).and(operation("create", "create")),
	},
	{
		name: "enqueue in bulk", count: 1, kind: "CLIENT", parent: below("POST /newsletters"),
		spans: func(s *story) []*jaeger.Span {
			var found []*jaeger.Span
			for _, top := range s.named("POST /newsletters") {
				found = append(found, s.under(top, "enqueue "+s.queue)...)
			}
			return found
		},
		links: func(s *story, _ *jaeger.Span) []jaeger.Link {
			var all []jaeger.Link
			for _, sp := range ofAll("create", "newsletters")(s) {
				all = append(all, sp.Link())
			}
			for len(all) < 3 {
				all = append(all, jaeger.Link{})
			}
			return all
		},
		attrs: onEach.and(operation("enqueue", "send")).and(attributes{attrBatch: is(int64(3)), attrMessageID: missing}),
	},
	{
		name: "process", spans: op("process", "orders", 0, -1), count: 1, kind: "CONSUMER", parent: below("enqueue Q"),
		attrs: aboutDelivery("order.confirm", 25, 1).and(operation("process", "process")).and(attributes{attrWait: atLeast(0)}),
	},
	{
		name: "process of a bulk", spans: ofAll("process", "newsletters"), count: 3, kind: "CONSUMER", parent: root, links: toCreation,
		attrs: aboutDelivery("newsletter.send", 25, 1).and(operation("process", "process")),
	},
	{
		name: "process that fails", spans: op("process", "payments", 0, 0), count: 1, kind: "CONSUMER", parent: below("enqueue Q"),
		attrs: aboutDelivery("payment.charge", 25, 1).and(operation("process", "process")), errorType: bank,
	},
	{
		name: "process of a retry", spans: op("process", "payments", 0, 1), count: 1, kind: "CONSUMER", parent: below("enqueue Q"), links: toAttempt(0),
		attrs: aboutDelivery("payment.charge", 25, 2).and(operation("process", "process")),
	},
	{
		name: "process that is snoozed", spans: op("process", "reminders", 0, 0), count: 1, kind: "CONSUMER", parent: below("enqueue Q"),
		attrs: aboutDelivery("reminder.send", 25, 1).and(operation("process", "process")),
	},
	{
		name: "process of the last attempt", spans: op("process", "refunds", 0, -1), count: 1, kind: "CONSUMER", parent: below("enqueue Q"),
		attrs: aboutDelivery("refund.pay", 1, 1).and(operation("process", "process")), errorType: bank,
	},
	{
		name: "process after a crash", spans: op("process", "exports", 0, -1), count: 1, kind: "CONSUMER", parent: below("enqueue Q"), links: toLost,
		attrs: aboutDelivery("export.build", 25, 1).and(operation("process", "process")),
	},
	{
		name: "process of a tick", count: 1, kind: "CONSUMER", parent: below("enqueue Q"),
		spans: func(s *story) []*jaeger.Span {
			var found []*jaeger.Span
			for _, sp := range s.of("process", "") {
				if sp.Attributes[attrKind] == "stock.count" && sp.Instance == "worker-1" { // the worker that was not killed
					found = append(found, sp)
				}
			}
			return pick(found, 0)
		},
		attrs: aboutDelivery("stock.count", 25, 1).and(operation("process", "process")),
	},
	{
		name: "lock acquire", spans: acquired(0), count: 1, kind: "INTERNAL", parent: below("process Q"),
		attrs: attributes{attrSystem: is("signalbox"), attrLockOutcome: is("acquired"), attrLockWait: atLeast(0), attrToken: atLeast(1)},
	},
	{
		name: "lock acquire that waits", spans: acquired(1), count: 1, kind: "INTERNAL", parent: below("process Q"),
		attrs: attributes{attrSystem: is("signalbox"), attrLockOutcome: is("acquired"), attrLockWait: atLeast(buildTime.Milliseconds() / 2), attrToken: atLeast(2)},
	},
	{
		name: "handle", spans: inJob("handle order.confirm", "orders", 0), count: 1, kind: "INTERNAL", parent: below("process Q"),
		attrs: aboutDelivery("order.confirm", 25, 1),
	},
	{
		name: "a span of the handler's own", spans: inJob("send mail", "orders", 0), count: 1, kind: "CLIENT", parent: below("handle order.confirm"),
	},
	{
		name: "ack", spans: op("ack", "orders", 0, -1), count: 1, kind: "CLIENT", parent: below("process Q"),
		attrs: aboutDelivery("order.confirm", 25, 1).and(operation("ack", "settle")).and(attributes{attrOutcome: is("completed")}),
	},
	{
		name: "retry", spans: op("retry", "payments", 0, -1), count: 1, kind: "CLIENT", parent: below("process Q"),
		attrs: aboutDelivery("payment.charge", 25, 1).and(operation("retry", "settle")).and(attributes{attrOutcome: is("retried"), attrNextRun: later}),
	},
	{
		name: "snooze", spans: op("snooze", "reminders", 0, 0), count: 1, kind: "CLIENT", parent: below("process Q"),
		attrs: aboutDelivery("reminder.send", 25, 1).and(operation("snooze", "settle")).and(attributes{attrOutcome: is("snoozed"), attrNextRun: later}),
	},
	{
		name: "dead_letter", spans: op("dead_letter", "refunds", 0, -1), count: 1, kind: "CLIENT", parent: below("process Q"),
		attrs: aboutDelivery("refund.pay", 1, 1).and(operation("dead_letter", "settle")).and(attributes{attrOutcome: is("dead")}),
	},
	{
		name: "reclaim", spans: op("reclaim", "exports", 0, -1), count: 1, kind: "CLIENT", parent: below("enqueue Q"), links: toLost,
		attrs: aboutDelivery("export.build", 25, 1).and(operation("reclaim", "settle")).and(attributes{attrOutcome: is("returned")}),
	},
	{
		name: "tick", spans: func(s *story) []*jaeger.Span { return pick(s.named("tick stock"), 0) }, count: 1, kind: "INTERNAL", parent: root,
		attrs: attributes{attrSystem: is("signalbox"), attrTick: isTime, attrLate: atLeast(0), attrMissed: atLeast(0)},
	},
	{
		name: "enqueue of a tick", count: 1, kind: "PRODUCER", parent: below("tick stock"),
		spans: func(s *story) []*jaeger.Span {
			var found []*jaeger.Span
			for _, sp := range pick(s.named("tick stock"), 0) {
				found = append(found, s.under(sp, "enqueue "+s.queue)...)
			}
			return found
		},
		attrs: aboutJob("stock.count", 25).and(operation("enqueue", "send")),
	},
}

// checkRow checks one row in subtests: whether the spans exist, their kind, parent, links,
// attributes and status.
func checkRow(t *testing.T, s *story, r row) {
	t.Helper()
	spans := r.spans(s)
	each := func(name string, run func(c *checker, sp *jaeger.Span)) check {
		return check{name, func(c *checker) {
			if len(spans) != r.count {
				c.Fatalf("%d such spans, want %d", len(spans), r.count)
			}
			for _, sp := range spans {
				run(c, sp)
				if c.Failed() {
					c.Logf("the trace:\n%s", s.tree(sp.TraceID))
					return
				}
			}
		}}
	}
	all := []check{
		each("kind", func(c *checker, sp *jaeger.Span) { equal(c, "the kind of "+show(sp), sp.Kind, r.kind) }),
		each("links", func(c *checker, sp *jaeger.Span) {
			var must []jaeger.Link
			if r.links != nil {
				must = r.links(s, sp)
			}
			for _, l := range must {
				c.that(slices.Contains(sp.Links, l), "%s links to %v, want a link to %v", show(sp), sp.Links, l)
			}
			for _, l := range sp.Links {
				c.that(slices.Contains(must, l), "%s has a link to %v, want none", show(sp), l)
			}
			c.that(len(sp.Links) == len(must), "%s has %d links, want %d", show(sp), len(sp.Links), len(must))
		}),
		each("attributes", func(c *checker, sp *jaeger.Span) {
			for key, ok := range r.attrs {
				v := sp.Attributes[key]
				c.that(ok(s, sp, v), "%s has %s=%v, which is wrong", show(sp), key, v)
			}
			c.that(sp.Name == strings.ToValidUTF8(sp.Name, ""), "the name %q", sp.Name)
		}),
		each("status", func(c *checker, sp *jaeger.Span) {
			errorType, _ := sp.Attributes[attrError].(string)
			exception := slices.ContainsFunc(sp.Events, func(e jaeger.Event) bool { return e.Name == "exception" })
			if r.errorType == nil {
				c.that(!sp.Error && errorType == "" && !exception, "%s is failed, %q %v; it should not be", show(sp), errorType, sp.Events)
				return
			}
			c.that(sp.Error, "%s is not failed", show(sp))
			c.that(r.errorType.MatchString(errorType), "%s has %s=%q, want one that matches %v", show(sp), attrError, errorType, r.errorType)
			c.that(exception, "%s has no recorded error: %v", show(sp), sp.Events)
		}),
	}
	if r.parent != nil {
		all = append(all, each("parent", func(c *checker, sp *jaeger.Span) {
			p, isRoot := r.parent(s, sp)
			if isRoot {
				c.that(sp.ParentID == "", "%s has the parent %s; it should be a root", show(sp), show(s.parent(sp)))
				return
			}
			c.that(p != nil, "%s has another parent than it should: %s", show(sp), show(s.parent(sp)))
		}))
	}
	checks(t, all)
	if !t.Failed() {
		seen.pass(t.Name(), 0)
	}
}

// whole returns the checks of the whole story.
func whole(j *jaeger.Server, s *story) []check {
	return []check{
		{"each job is one waterfall", func(c *checker) {
			for what, ids := range s.jobs {
				if what == "newsletters" || what == "stock" || what == "and" { // bulks have links; ticks are checked below
					continue
				}
				for _, id := range ids {
					for _, sp := range s.of("process", id) {
						top := sp
						for p := s.parent(top); p != nil; p = s.parent(p) {
							top = p
						}
						equal(c, "the root of a "+what+" job", top.Name, "POST /"+what)
					}
					c.that(len(s.of("process", id)) > 0, "%s: job %s has no process span", what, id)
				}
			}
			for _, sp := range s.spans {
				c.that(sp.ParentID == "" || s.parent(sp) != nil || lostParent(s, sp), "the parent of %s is nowhere", show(sp))
			}
		}},
		{"a process span ends with its settlement", func(c *checker) {
			for _, name := range []string{"ack", "retry", "snooze", "dead_letter"} {
				for _, sp := range s.of(name, "") {
					if p := s.parent(sp); p != nil {
						c.that(!p.End.Before(sp.End) && !sp.Start.Before(p.Start), "%s is not within %s", show(sp), show(p))
					}
				}
			}
			c.that(len(s.of("ack", "")) > 0, "no ack at all")
		}},
		{"attempts and tokens rise", func(c *checker) {
			for what, n := range map[string]int{"payments": 2, "reminders": 2} {
				attempt, token := int64(0), int64(0)
				deliveries := s.of("process", s.job(what, 0))
				c.that(len(deliveries) >= n, "%d deliveries of %s, want %d at least", len(deliveries), what, n)
				for _, sp := range deliveries {
					a, _ := sp.Attributes[attrAttempt].(int64)
					tok, _ := sp.Attributes[attrToken].(int64)
					c.that(a > attempt || what == "reminders" && a == 1, "%s: attempt %d after %d", what, a, attempt)
					c.that(tok > token, "%s: token %d after %d", what, tok, token)
					attempt, token = a, tok
				}
			}
			var tokens []int64
			for n := range 2 {
				for _, sp := range acquired(n)(s) {
					if tok, ok := sp.Attributes[attrToken].(int64); ok {
						tokens = append(tokens, tok)
					}
				}
			}
			c.that(len(tokens) == 2 && tokens[0] < tokens[1], "the tokens of the named lock are %v, want two", tokens)
		}},
		{"a lock is asked for once, with all of the waiting", func(c *checker) {
			for i, id := range s.jobs["reports"] {
				equal(c, "lock acquire spans of report "+id, len(inJob("lock acquire", "reports", i)(s)), 1)
			}
			c.that(len(s.jobs["reports"]) > 1, "%d reports", len(s.jobs["reports"]))
		}},
		{"the crash is told by both links", func(c *checker) {
			reclaims, next := s.of("reclaim", s.job("exports", 0)), s.of("process", s.job("exports", 0))
			if len(reclaims) != 1 || len(next) != 1 {
				c.Fatalf("%d reclaims and %d process spans, want one of each", len(reclaims), len(next))
			}
			lost := toLost(s, reclaims[0])[0]
			c.that(lost != jaeger.Link{}, "reclaim links to no lost attempt: %v", reclaims[0].Links)
			c.that(slices.Contains(next[0].Links, lost), "the next attempt links to %v, the reclaim to %v", next[0].Links, lost)
			equal(c, "who reclaimed", reclaims[0].Instance, "worker-3")
		}},
		{"each tick has one span", func(c *checker) {
			ticks := make(map[any]int)
			for _, sp := range s.named("tick stock") {
				ticks[sp.Attributes[attrTick]]++
			}
			c.that(len(ticks) > 1, "%d ticks", len(ticks))
			for at, n := range ticks {
				equal(c, fmt.Sprintf("spans of the tick of %v", at), n, 1)
			}
		}},
		{"no other spans", func(c *checker) {
			known := regexp.MustCompile(`^((enqueue|create|process|ack|retry|snooze|dead_letter|reclaim) ` + regexp.QuoteMeta(s.queue) +
				`|handle [a-z.]+|lock acquire|tick stock)$`)
			for _, sp := range s.spans {
				c.that(sp.Scope == "shop" || known.MatchString(sp.Name), "what is %s?", show(sp))
			}
		}},
		{"no payload, password or lock key", func(c *checker) {
			checkPrivate(c, "the traces", string(s.raw), s.redis.url)
			checkPrivate(c, "the output", s.output, s.redis.url)
			c.that(len(s.raw) > 1000, "only %d bytes of traces", len(s.raw))
		}},
		{"errors are found by their type", func(c *checker) {
			for _, what := range []string{"payments", "refunds"} {
				for _, sp := range pick(s.of("process", s.job(what, 0)), 0) {
					errorType, _ := sp.Attributes[attrError].(string)
					ids, err := j.SearchErrors(c.Context(), "shop-worker", errorType, 100)
					c.that(err == nil && slices.Contains(ids, sp.TraceID), "%s: searched %q, found %v, %v", what, errorType, ids, err)
				}
				c.that(len(s.of("process", s.job(what, 0))) > 0, "%s: no process span", what)
			}
		}},
	}
}

// lostParent reports whether the span's parent was lost with the killed worker.
func lostParent(s *story, sp *jaeger.Span) bool {
	return sp.Instance == "worker-2" || s.job("exports", 0) == sp.Attributes[attrMessageID]
}
