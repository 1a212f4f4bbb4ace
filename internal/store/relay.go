package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A Parcel is a job as an outbox keeps it, until a relay puts it in.
type Parcel struct {
	ID       string
	Class    []byte    // the class of the call, with marks, flags and extras; at most maxClass bytes
	Due      time.Time // zero: at once
	Envelope []byte
}

// maxClass is the most bytes of a class: its marks, and the extras.
const maxClass = 24 + wire.MaxExtras

// Parcel returns the item for an outbox. It has no delay and no tick: its time is absolute.
func (it *Item) Parcel() (Parcel, error) {
	p := Parcel{ID: it.id, Class: []byte(it.class), Envelope: it.envelope}
	if it.when == "" {
		return p, nil
	}
	us, err := strconv.ParseInt(strings.TrimPrefix(it.when, "@"), 10, 64)
	if err != nil || it.when[0] != '@' {
		return Parcel{}, fmt.Errorf("%w time: an outbox takes a job that is due at once or at a time", signalbox.ErrInvalid)
	}
	p.Due = time.UnixMicro(us)
	return p, nil
}

// SequenceHeader is the header that has a job's sequence: the place of its row in the table of an outbox, as a decimal number.
const SequenceHeader = "signalbox-sequence"

// sequenceSize is the most bytes that the sequence takes in an envelope.
var sequenceSize = len(wire.AppendHeader(nil, SequenceHeader, strconv.FormatInt(math.MaxInt64, 10)))

// HasRoomForSequence returns an error that wraps signalbox.ErrInvalid if the envelope would be too large with a sequence.
func (p Parcel) HasRoomForSequence() error {
	if n := len(p.Envelope) + sequenceSize; n > wire.MaxEnvelope {
		return fmt.Errorf("%w payload: the job takes %d bytes with its sequence, at most %d are allowed; store the large part elsewhere and enqueue its name",
			signalbox.ErrInvalid, n, wire.MaxEnvelope)
	}
	return nil
}

// WithSequence returns the parcel with that sequence. It doesn't change p.
func (p Parcel) WithSequence(n int64) Parcel {
	p.Envelope = wire.AppendHeader(slices.Clip(p.Envelope), SequenceHeader, strconv.FormatInt(n, 10))
	return p
}

// Item returns the parcel as an item. late is how long ago it should have been put in, or 0: a job that expires has that much less time. The error says
// what is wrong with the parcel. It wraps signalbox.ErrInvalid, and has none of the parcel's bytes.
func (p Parcel) Item(late time.Duration) (Item, error) {
	if err := layout.ValidateID(p.ID); err != nil {
		return Item{}, fmt.Errorf("%w job ID: it is no name of 1 to %d bytes", signalbox.ErrInvalid, layout.MaxName)
	}
	marks, extras, _ := bytes.Cut(p.Class, []byte("+"))
	if len(p.Class) == 0 || len(p.Class) > maxClass || bytes.Trim(marks[1:], "!~*0123456789") != nil || marks[0] < '0' || marks[0] > '2' {
		return Item{}, fmt.Errorf("%w class: it is not that of an enqueue", signalbox.ErrInvalid)
	}
	if len(p.Envelope) > wire.MaxEnvelope {
		return Item{}, fmt.Errorf("%w payload: the job takes %d bytes, at most %d are allowed", signalbox.ErrInvalid, len(p.Envelope), wire.MaxEnvelope)
	}
	if _, err := wire.DecodeEnvelope(p.Envelope); err != nil {
		return Item{}, fmt.Errorf("%w envelope: it can't be decoded", signalbox.ErrInvalid)
	}
	it := Item{id: p.ID, class: string(p.Class), envelope: p.Envelope}
	if len(extras) > 0 {
		flags, all := extras[0], bytes.Clone(extras[1:])
		it.special = flags&(wire.FlagGroup|wire.FlagUnique) != 0
		if late > 0 {
			wire.Shorten(flags, all, late)
			it.class = withExtras(string(marks), flags, all)
		}
	}
	if !p.Due.IsZero() {
		it.when = When{At: p.Due}.arg()
	}
	return it, nil
}

// A Place is the number of a batch in its shard, from 1, and its nonce: 1 to 64 of the characters 0-9 and a-z, without a v at the end, drawn anew for each
// batch. The zero value stands for no batch.
type Place struct {
	Seq   int64
	Nonce string
}

// Void returns the place of the batch after it has become void.
func (p Place) Void() Place { return Place{p.Seq, p.Nonce + "v"} }

func (p Place) String() string {
	if p.Seq == 0 {
		return "0 0"
	}
	return strconv.FormatInt(p.Seq, 10) + " " + p.Nonce
}

// A Batch is what a shard of an outbox sends in one call.
type Batch struct {
	Place
	After Place  // the shard's last batch in Redis, as the caller knows it; its number is below that of the batch
	Again bool   // Redis had the batch, and has lost it: the queue's maximum length doesn't count
	Items []Item // none: the batch becomes void, and can't be sent any more
}

var (
	// ErrVoid says that a batch had been made void. Its jobs are not put in, and never will be.
	ErrVoid = errors.New("store: the batch is void")
	// ErrSent says that a batch can't become void, since its jobs were put in before.
	ErrSent = errors.New("store: the batch was sent before")
)

// A NoRoomError says that the queue has no room for all jobs of a batch. The call changed nothing.
type NoRoomError struct{ Room int64 } // for how many jobs it has; 0 or less: for none

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("store: the queue has room for %d jobs, fewer than the batch has", max(e.Room, 0))
}

// An OutOfStepError says that the shard's last batch in Redis is another one than the call says. The call changed nothing.
type OutOfStepError struct{ Last Place }

func (e *OutOfStepError) Error() string {
	return fmt.Sprintf("store: the last batch of the outbox in Redis is another one, number %d", e.Last.Seq)
}

// Relay puts the jobs of a batch in, unless that was done before: then the outcomes are those of the first call. It puts in all of them or none: nobody
// could tell half a batch from a whole one. The error may be ErrVoid, ErrSent, a *NoRoomError or an *OutOfStepError.
func (ob *Outboxes) Relay(ctx context.Context, outbox string, shard int, b *Batch) (Fates, error) {
	if len(b.Items) > MaxBatch {
		return Fates{}, fmt.Errorf("%w batch: %d jobs, at most %d go in one call", signalbox.ErrInvalid, len(b.Items), MaxBatch)
	}
	mode := "p"
	switch {
	case len(b.Items) == 0:
		mode = "v"
	case b.Again:
		mode = "a"
	}
	args := scripts.Relay.Args(4*len(b.Items), scripts.Arg("call", fmt.Sprint(layout.Protocol, " ", b.Place, " ", b.After, " ", mode)))
	for i := range b.Items {
		it := &b.Items[i]
		args = append(args, it.id, it.class, it.when, it.envelope)
	}
	r, err := scripts.Relay.Run(ctx, ob.q.rdb, scripts.Relay.Keys(&ob.q.keys, ob.q.keys.Outbox(outbox, shard)), args)
	if err != nil {
		return Fates{}, jobError(err)
	}
	switch word := r.Str(0); {
	case r.Err != nil:
		return Fates{}, r.Err
	case word == "void":
		return Fates{}, ErrVoid
	case word == "done":
		return Fates{}, ErrSent
	case word == "full":
		err := &NoRoomError{r.Int(1)}
		if r.Err != nil {
			return Fates{}, r.Err
		}
		return Fates{}, err
	case word == "other":
		err := &OutOfStepError{Last: placeOf(r.Int(1), r.Str(2))}
		if r.Err != nil {
			return Fates{}, r.Err
		}
		return Fates{}, err
	}
	if len(b.Items) == 0 {
		return Fates{Now: time.UnixMicro(r.Int(1))}, r.Status("ok")
	}
	return parseEnqueue(r, len(b.Items))
}

// A JobError says that relay.lua refused a batch because of one of its jobs. No other reply is about the jobs: see jobError.
type JobError struct{ Reply error }

func (e *JobError) Error() string { return e.Reply.Error() }

func (e *JobError) Unwrap() error { return e.Reply }

// jobError returns a *JobError if the reply of relay.lua is about a job of the call. It returns other errors unchanged. They are about Redis (OOM, READONLY, MISCONF,
// BUSY, NOPERM), about keys of the queue (WRONGTYPE, a lane with another text), about the layout of the queue, or a bug of the script ("user_script:12: ..."): then
// the same jobs are put in once that is mended.
func jobError(err error) error {
	for _, text := range jobErrors {
		if redis.HasErrorPrefix(err, "signalbox: "+text) { // go-redis takes ERR away
			return &JobError{err}
		}
	}
	return err
}

// jobErrors are how the replies begin that are about a job. See read_request in the chapter calls.
var jobErrors = []string{"the id, the class or the time of job ", "an id has other characters than printable ASCII"}

func placeOf(seq int64, nonce string) Place {
	if seq == 0 {
		return Place{}
	}
	return Place{seq, nonce}
}

// Room returns how many jobs may be put in before the queue has its maximum length. limited is false if it has none.
func (q *Queue) Room(ctx context.Context) (room int64, limited bool, err error) {
	var setting *redis.StringCmd
	var jobs, dead, cancelled, completed *redis.IntCmd
	_, err = q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		k := &q.keys
		setting, jobs = p.HGet(ctx, k.Settings, "max_length"), p.HLen(ctx, k.Jobs)
		dead, cancelled, completed = p.ZCard(ctx, k.Dead), p.ZCard(ctx, k.Cancelled), p.ZCard(ctx, k.Completed)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, false, err
	}
	most, bad := strconv.ParseInt(setting.Val(), 10, 64)
	if bad != nil || most <= 0 {
		return 0, false, nil
	}
	return most - (jobs.Val() - dead.Val() - cancelled.Val() - completed.Val()), true, nil
}

// Relayed returns the last batch that Redis has of each of these shards of an outbox.
func (ob *Outboxes) Relayed(ctx context.Context, outbox string, shards ...int) ([]Place, error) {
	keys := make([]string, len(shards))
	for i, shard := range shards {
		keys[i] = ob.q.keys.Outbox(outbox, shard)
	}
	values, err := ob.q.rdb.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, err
	}
	last := make([]Place, len(shards))
	for i, v := range values {
		text, there := v.(string)
		if !there {
			continue
		}
		words := strings.SplitN(text, " ", 3)
		seq, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil || len(words) != 3 {
			return nil, fmt.Errorf("store: the lane of shard %d of the outbox has a text that is not its own: is another program writing to this queue's keys?", shards[i])
		}
		last[i] = placeOf(seq, words[1])
	}
	return last, nil
}

// Set publishes what an outbox has for the queue, as text, for so long.
func (ob *Outboxes) Set(ctx context.Context, outbox, text string, ttl time.Duration) error {
	_, err := ob.q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, ob.q.keys.Outboxes, outbox, text)
		p.PExpire(ctx, ob.q.keys.Outboxes, ttl)
		return nil
	})
	return err
}

// All returns what outboxes have published for the queue, by their IDs.
func (ob *Outboxes) All(ctx context.Context) (map[string]string, error) {
	return ob.q.rdb.HGetAll(ctx, ob.q.keys.Outboxes).Result()
}

// An OutboxState is what relays publish about an outbox for a queue, as JSON. Times are µs since the Unix epoch, by the clock of the database.
type OutboxState struct {
	At      int64 `json:"at"`
	Backlog int64 `json:"backlog"`          // rows that wait
	More    bool  `json:"more,omitempty"`   // there are more than that
	Oldest  int64 `json:"oldest,omitempty"` // since when the oldest one waits
	Dead    int64 `json:"dead,omitempty"`   // rows that can't be enqueued
	Strays  int64 `json:"strays,omitempty"` // rows of the whole outbox that can't be enqueued since they are of no queue
}

// Lag returns for how long the oldest row waits, in µs.
func (s OutboxState) Lag(now int64) int64 {
	if s.Oldest == 0 {
		return 0
	}
	return max(now-s.Oldest, 0)
}

// Has reports for each parcel whether the queue has its job: one with its ID, its kind and its incarnation, in any state.
func (ob *Outboxes) Has(ctx context.Context, parcels []Parcel) ([]bool, error) {
	ids := make([]string, len(parcels))
	for i, p := range parcels {
		ids[i] = p.ID
	}
	records, err := ob.q.rdb.HMGet(ctx, ob.q.keys.Jobs, ids...).Result()
	if err != nil {
		return nil, err
	}
	has := make([]bool, len(parcels))
	for i, v := range records {
		text, there := v.(string)
		var found signalbox.Job
		if !there || wire.Decode([]byte(text), &found) != nil {
			continue
		}
		mine, err := wire.DecodeEnvelope(parcels[i].Envelope)
		has[i] = err == nil && found.Kind == mine.Kind && found.Incarnation == mine.Incarnation && found.Effect == mine.Effect
	}
	return has, nil
}
