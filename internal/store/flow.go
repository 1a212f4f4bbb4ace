package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

// MaxFlowName is the longest name of a flow, in bytes.
const MaxFlowName = 64

// ValidateFlow returns an error that wraps signalbox.ErrInvalid unless name can name a flow.
func ValidateFlow(name string) error {
	if len(name) > MaxFlowName {
		return fmt.Errorf("%w flow ID: %d bytes, at most %d are allowed", signalbox.ErrInvalid, len(name), MaxFlowName)
	}
	return layout.ValidateFlow(name)
}

// NewFlowMark returns a mark for a new flow.
func NewFlowMark() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	var text [11]byte
	base62(text[:], uint64(b[0])|uint64(b[1])<<8|uint64(b[2])<<16|uint64(b[3])<<24)
	return string(text[6:])
}

// FlowOf returns the flow that the delivery's job is a member of. ok is false if it is a member of none.
func (d *Delivery) FlowOf() (ref facts.FlowRef, ok bool) { return linkedTo(d.record, "r") }

// AnyFlowOf returns the flow that the delivery's job is a member of, or has waited for. ok is false if there is none.
func (d *Delivery) AnyFlowOf() (ref facts.FlowRef, ok bool) { return linkedTo(d.record, "rSEF") }

// linkedTo returns the flow of the first link in a record that has one of these roles.
func linkedTo(record []byte, roles string) (ref facts.FlowRef, ok bool) {
	for link := range strings.SplitSeq(wire.LinksOf(record), " ") {
		if link != "" && strings.IndexByte(roles, link[0]) >= 0 {
			name, mark, found := strings.Cut(link[1:], "{")
			return facts.FlowRef{Name: name, Mark: mark}, found
		}
	}
	return facts.FlowRef{}, false
}

// What a job can wait for of a flow.
const (
	AwaitsSuccess = wire.LinkAwaitsSuccess
	AwaitsEnd     = wire.LinkAwaitsEnd
	AwaitsFailure = wire.LinkAwaitsFailure
)

// Join makes the job a member of a flow. It is called last of those that give extras.
func (it *Item) Join(ref facts.FlowRef) { it.link(wire.LinkMember, ref) }

// Await has the job wait for a flow. It is called last of those that give extras.
func (it *Item) Await(role byte, ref facts.FlowRef) { it.link(role, ref) }

func (it *Item) link(role byte, ref facts.FlowRef) {
	marks, extras, _ := strings.Cut(it.class, "+")
	flags := byte(0)
	if extras != "" {
		flags, extras = extras[0], extras[1:]
	}
	flags, all := wire.WithLinks(flags, []byte(extras), string(role)+ref.Text())
	it.class = withExtras(marks, flags, all)
}

// FlowTerms are what a flow is made with.
type FlowTerms struct {
	Within   time.Duration // how long it may stay unsealed after a call
	Timeout  time.Duration // how long it may last; 0: for ever
	FailFast bool          // it is cancelled when a member ends that hasn't completed
}

// A Callback is a job that waits for a flow from its beginning on.
type Callback struct {
	Role byte // AwaitsSuccess, AwaitsEnd or AwaitsFailure
	Item Item // without a link
}

// A FlowTaken error says that a job has the ID of one that was to wait for a new flow.
type FlowTaken struct{ ID string }

func (e *FlowTaken) Error() string {
	return fmt.Sprintf("store: there is a job %q", e.ID)
}

// ErrNoFlow says that there is no such flow: none of this name was made, or it is forgotten.
var ErrNoFlow = errors.New("store: there is no such flow")

// Create makes a flow, with the jobs that wait for it. If there is one of its name, that is returned, and anew is false. The error wraps signalbox.ErrQueueFull, or is a *FlowTaken.
func (fs *Flows) Create(ctx context.Context, ref facts.FlowRef, terms FlowTerms, callbacks []Callback) (f facts.Flow, anew bool, err error) {
	args := make([]any, 0, 4*len(callbacks))
	for i := range callbacks {
		c := &callbacks[i]
		it := c.Item
		it.Await(c.Role, ref)
		args = append(args, string(c.Role), it.id, it.class, it.envelope)
	}
	flags := ""
	if terms.FailFast {
		flags = "q"
	}
	r, err := fs.call(ctx, "create", ref, terms, flags, 0, args)
	if err != nil {
		return facts.Flow{}, false, err
	}
	switch word := r.Str(2); word {
	case "taken":
		return facts.Flow{}, false, &FlowTaken{r.Str(4)}
	case "full":
		var n Length
		if _, err := fmt.Sscanf(r.Str(4), "%d/%d", &n.Jobs, &n.Max); err != nil {
			r.Fail(4, "no length")
			return facts.Flow{}, false, r.Err
		}
		return facts.Flow{}, false, &signalbox.QueueFullError{Queue: fs.q.name, Length: n.Jobs, Max: n.Max}
	default:
		f, err = fs.read(r, ref.Name)
		return f, word == "new", err
	}
}

// A Sealing is what a producer knows that seals a flow.
type Sealing struct {
	Given int64 // how many jobs it has given
	Again bool  // another one before it has made the flow
}

var (
	// ErrFlowGap says that a flow has fewer jobs of its producer than that has given: Redis has lost some.
	ErrFlowGap = errors.New("store: the flow lacks some of what its producer has given")
	// ErrFlowFewer says that a producer has begun again, and has given fewer jobs than the one before it.
	ErrFlowFewer = errors.New("store: the flow has more than its producer has given")
)

// Seal has no producer add to a flow any more. For one that is sealed it does nothing. Without a mark it is the flow that has the name. The error is ErrNoFlow if there is none; ErrFlowGap, or ErrFlowFewer with the flow: then it isn't sealed.
func (fs *Flows) Seal(ctx context.Context, ref facts.FlowRef, s Sealing) (facts.Flow, error) {
	return fs.end(ctx, "seal", ref, s)
}

// Cancel cancels a flow, unless it is over. Its members end when passes come to them, see Pass.
func (fs *Flows) Cancel(ctx context.Context, ref facts.FlowRef) (facts.Flow, error) {
	return fs.end(ctx, "cancel", ref, Sealing{})
}

func (fs *Flows) end(ctx context.Context, verb string, ref facts.FlowRef, s Sealing) (facts.Flow, error) {
	flags := ""
	if s.Again {
		flags = "r"
	}
	r, err := fs.call(ctx, verb, ref, FlowTerms{}, flags, s.Given, nil)
	if err != nil {
		return facts.Flow{}, err
	}
	word := r.Str(2)
	if word == "none" {
		return facts.Flow{}, ErrNoFlow
	}
	f, err := fs.read(r, ref.Name)
	switch {
	case err != nil:
	case word == "gap":
		err = ErrFlowGap
	case word == "fewer":
		err = ErrFlowFewer
	}
	return f, err
}

func (fs *Flows) call(ctx context.Context, verb string, ref facts.FlowRef, terms FlowTerms, flags string, given int64, callbacks []any) (*scripts.Reply, error) {
	args := scripts.Flow.Args(len(callbacks), scripts.Arg("protocol", layout.Protocol), scripts.Arg("verb", verb), scripts.Arg("name", ref.Name), scripts.Arg("mark", ref.Mark),
		scripts.Arg("within", terms.Within.Microseconds()), scripts.Arg("till", terms.Timeout.Microseconds()), scripts.Arg("flags", flags), scripts.Arg("given", given),
		scripts.Arg("keep_jobs", fs.q.kept.Jobs), scripts.Arg("keep_bytes", fs.q.kept.Bytes), scripts.Arg("keep_us", fs.q.kept.Age.Microseconds()))
	r, err := scripts.Flow.Run(ctx, fs.q.rdb, scripts.Flow.Keys(&fs.q.keys), append(args, callbacks...))
	if err != nil {
		return nil, err
	}
	return r, r.Status("ok")
}

// read reads the flow in a reply.
func (fs *Flows) read(r *scripts.Reply, name string) (facts.Flow, error) {
	f, ok := facts.ParseFlow(name, r.Str(3))
	if !ok {
		r.Fail(3, "no flow")
	}
	return f, r.Err
}

// Get returns a flow. found is false if there is none of the name, or what there is can't be read.
func (fs *Flows) Get(ctx context.Context, name string) (f facts.Flow, found bool, err error) {
	text, err := fs.q.rdb.HGet(ctx, fs.q.keys.Flows, name).Result()
	if errors.Is(err, redis.Nil) {
		return facts.Flow{}, false, nil
	}
	f, found = facts.ParseFlow(name, text)
	return f, found, err
}

// Page returns a page of the queue's flows in no order, and the cursor of the next page, which is 0 behind the last one. A flow may come twice.
func (fs *Flows) Page(ctx context.Context, cursor uint64) (flows []facts.Flow, next uint64, err error) {
	page, next, err := fs.q.rdb.HScan(ctx, fs.q.keys.Flows, cursor, "", 500).Result()
	for i := 0; i+1 < len(page); i += 2 {
		if f, ok := facts.ParseFlow(page[i], page[i+1]); ok {
			flows = append(flows, f)
		}
	}
	return flows, next, err
}

// FlowCounts are how many of a queue's flows aren't over, and how many have failed, whether they are over or not.
type FlowCounts struct{ Open, Failed int64 }

// maxFlowPages is how many pages of flows Count reads: some 10,000 flows.
const maxFlowPages = 20

// Count counts the queue's flows, in a look at some 10,000.
func (fs *Flows) Count(ctx context.Context) (n FlowCounts, err error) {
	seen := make(map[string]bool)
	cursor := uint64(0)
	for range maxFlowPages {
		var flows []facts.Flow
		flows, cursor, err = fs.Page(ctx, cursor)
		if err != nil {
			return FlowCounts{}, err
		}
		for i := range flows {
			f := &flows[i]
			if seen[f.Name] {
				continue
			}
			seen[f.Name] = true
			if !f.Over {
				n.Open++
			}
			if f.Failed {
				n.Failed++
			}
		}
		if cursor == 0 {
			break
		}
	}
	return n, nil
}

// MaxMembers is how many members a call adds at most.
const MaxMembers = 500

// An Addition is a call that adds members to a flow: the producer's, or that of a member which runs.
type Addition struct {
	Flow  facts.FlowRef
	Items []Item // each with Join

	First  int64  // how many jobs the producer has given before; 0 for a member
	Digest string // of all that it has given with these: letters and digits

	Session string // in which the member runs
	ID      string // of the member
	Token   int64
	Before  int // how many it has added before, in this delivery
}

// An Added is what became of an Addition.
type Added struct {
	Word   string // "in", or why nothing was added: see add.lua
	Fates  Fates  // if the word is "in"; if it is "full" Full of it says how many jobs the queue has
	Given  int64  // if the word is "part": how many jobs the flow has got from its producer, and their digest
	Digest string
}

// AddedBefore is the fate of a job that the member had added in an earlier delivery.
const AddedBefore Fate = 'w'

// Add puts jobs in that are members of a flow. As they are numbered, no call does so twice: also of another lane, and of another process.
func (fs *Flows) Add(ctx context.Context, lane *Lane, a *Addition) (Added, error) {
	if len(a.Items) == 0 || len(a.Items) > MaxMembers {
		return Added{}, fmt.Errorf("%w addition: %d jobs, want 1 to %d", signalbox.ErrInvalid, len(a.Items), MaxMembers)
	}
	first, token, before := any(a.First), any(""), any("")
	if a.ID != "" {
		first, token, before = "", a.Token, a.Before
	}
	args := scripts.Add.Args(4*len(a.Items), scripts.Arg("protocol", layout.Protocol), scripts.Arg("seq", lane.seq), scripts.Arg("flow", a.Flow.Text()),
		scripts.Arg("first", first), scripts.Arg("digest", a.Digest), scripts.Arg("id", a.ID), scripts.Arg("token", token), scripts.Arg("before", before))
	for i := range a.Items {
		it := &a.Items[i]
		args = append(args, it.id, it.class, it.when, it.envelope)
	}
	r, err := scripts.Add.Run(ctx, fs.q.rdb, scripts.Add.Keys(&fs.q.keys, lane.key, fs.q.keys.Inflight(a.Session)), args)
	if err != nil {
		return Added{}, err
	}
	if err := r.Status("ok"); err != nil {
		return Added{}, err
	}
	added := Added{Word: r.Str(2)}
	if added.Word == "full" {
		_, added.Fates.full = metOf(r, 4, true)
	}
	if added.Word == "part" {
		words := r.Strs(4)
		var err error
		if len(words) == 2 {
			added.Digest = words[1]
			added.Given, err = strconv.ParseInt(words[0], 10, 64)
		}
		if after := added.Given - a.First; err != nil || after <= 0 || after >= int64(len(a.Items)) {
			r.Fail(4, "no number of jobs, and no digest")
		}
	}
	if added.Word == "in" {
		list := r.Str(3)
		if len(list) != len(a.Items) {
			r.Fail(3, fmt.Sprintf("a text of %d outcomes, for %d jobs", len(list), len(a.Items)))
		}
		met, _ := metOf(r, 4, false)
		added.Fates = Fates{Now: time.UnixMicro(r.Int(1)), list: list, met: met}
	}
	return added, r.Err
}

// whyFlowCancelled is what jobs have as their last error that were cancelled with their flow.
const whyFlowCancelled = "its batch was cancelled"

// Pass does a page of a pass that ends the members of a flow that was cancelled. more says that the pass goes on. If it has ended, others follow until the flow is over: members may have changed their
// places meanwhile. The next one is due after wait.
func (fs *Flows) Pass(ctx context.Context, name string) (more, over bool, wait time.Duration, err error) {
	for range facts.MaxTries {
		sessions, err := fs.q.rdb.ZRange(ctx, fs.q.keys.Sessions, 0, facts.MaxActSessions).Result()
		if err != nil {
			return false, false, 0, err
		}
		keys := scripts.Pass.Keys(&fs.q.keys)
		for _, session := range sessions {
			keys = append(keys, fs.q.keys.Inflight(session))
		}
		r, err := scripts.Pass.Run(ctx, fs.q.rdb, keys, scripts.Pass.Args(0, scripts.Arg("protocol", layout.Protocol), scripts.Arg("name", name), scripts.Arg("mark", facts.MarkOf(whyFlowCancelled)),
			scripts.Arg("keep_jobs", fs.q.kept.Jobs), scripts.Arg("keep_bytes", fs.q.kept.Bytes), scripts.Arg("keep_us", fs.q.kept.Age.Microseconds()),
			scripts.Arg("inflight", fs.q.keys.Inflight("")), scripts.Arg("channels", fs.q.keys.Channel(""))))
		if err != nil {
			return false, false, 0, err
		}
		if r.Str(0) == "again" {
			continue
		}
		if err := r.Status("ok"); err != nil {
			return false, false, 0, err
		}
		return r.Str(2) == "more", r.Str(2) == "over", time.Duration(r.Int(3)) * time.Microsecond, r.Err
	}
	return false, false, 0, facts.ErrMoving
}

// A Tended says what a call of Tend has found.
type Tended struct {
	Next     time.Duration // until the next flow is to be looked at, negative: there is none
	Cursor   string        // for the next call
	Unsealed []string      // flows that were cancelled, since nobody had sealed them in time
	Late     []string      // flows that were cancelled, since they had lasted too long
}

// Tend looks at flows whose time has come: those that nobody has sealed in time, those that last too long, and those that are forgotten. cursor is "0" at first, and then the Cursor of the call before.
func (fs *Flows) Tend(ctx context.Context, cursor string) (Tended, error) {
	return fs.tend(ctx, "", cursor)
}

// Release goes on with the jobs that wait for a flow.
func (fs *Flows) Release(ctx context.Context, name string) error {
	_, err := fs.tend(ctx, name, "")
	return err
}

func (fs *Flows) tend(ctx context.Context, name, cursor string) (t Tended, err error) {
	r, err := scripts.Tend.Run(ctx, fs.q.rdb, scripts.Tend.Keys(&fs.q.keys), scripts.Tend.Args(0, scripts.Arg("protocol", layout.Protocol), scripts.Arg("name", name), scripts.Arg("cursor", cursor),
		scripts.Arg("keep_jobs", fs.q.kept.Jobs), scripts.Arg("keep_bytes", fs.q.kept.Bytes), scripts.Arg("keep_us", fs.q.kept.Age.Microseconds())))
	if err != nil {
		return t, err
	}
	if err := r.Status("ok"); err != nil {
		return t, err
	}
	t.Next, t.Cursor = time.Duration(r.Int(2)), r.Str(3)
	if t.Next > 0 {
		t.Next *= time.Microsecond
	}
	for _, late := range r.Strs(4) {
		if id, ok := strings.CutPrefix(late, "0"); ok {
			t.Unsealed = append(t.Unsealed, id)
		} else {
			t.Late = append(t.Late, strings.TrimPrefix(late, "1"))
		}
	}
	return t, r.Err
}

// Notes returns a page of the flows for which there is something to do: those with jobs to be released, and those that were cancelled and aren't over. next is the cursor of the next page, 0 behind the last one.
func (fs *Flows) Notes(ctx context.Context, cursor uint64) (released, cancelled []string, next uint64, err error) {
	page, next, err := fs.q.rdb.HScan(ctx, fs.q.keys.FlowNotes, cursor, "", 500).Result()
	for i := 0; i+1 < len(page); i += 2 {
		switch name, what, _ := strings.Cut(page[i], "{"); what {
		case "":
			released = append(released, name)
		case "x":
			cancelled = append(cancelled, name)
		}
	}
	return released, cancelled, next, err
}

// Any reports whether the queue has flows.
func (fs *Flows) Any(ctx context.Context) (bool, error) {
	n, err := fs.q.rdb.Exists(ctx, fs.q.keys.Flows).Result()
	return n > 0, err
}
