package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

const (
	// maxReclaim is the most jobs that one call takes back.
	maxReclaim = 500
	// maxLost bounds the records that one call reads, and returns, in bytes.
	maxLost = 2 * wire.MaxEnvelope
	// pageSize is about how many deliveries one page of a session has.
	pageSize = 1000
)

// Reclaimed is what one call of a Recovery did. Its deliveries have the token that was lost and, if Redis had
// heard of it, the span.
type Reclaimed struct {
	At       time.Time  // by the server's clock
	Left     int        // deliveries of the session that were not taken back yet
	Done     bool       // there is no more to take back: the session is gone, lives, or changed meanwhile
	Returned []string   // jobs that will run again
	Dead     []Delivery // of jobs that crashed as often as the limit
	Lost     []Delivery // of those Returned, if they were asked for
	// Cancelled are deliveries of jobs that were cancelled while they ran: they ended so.
	Cancelled []Delivery
}

// A Recovery takes back the jobs of a session that is over, call by call. What it costs grows with their
// number, and no call is long: the session's deliveries are read once, in pages, and sorted here.
type Recovery struct {
	q       *Queue
	session string
	details bool
	read    bool
	grants  []facts.Grant // what is left to do, the newest first
	newest  int64         // the highest token of all
}

// Reclaim begins to take back the jobs of a session. With details, what comes back says more of those that
// will run again.
func (ss *Sessions) Reclaim(session string, details bool) *Recovery {
	return &Recovery{q: ss.q, session: session, details: details}
}

// Next takes back up to 500 jobs, or as many as have 2 MiB of records, if the session is over, and
// counts their crashes. When it fails it can be called again.
func (r *Recovery) Next(ctx context.Context) (Reclaimed, error) {
	if !r.read {
		if err := r.readAll(ctx); err != nil {
			return Reclaimed{}, err
		}
		r.read = true
	}
	q := r.q
	why := wire.AppendLastError(nil, fmt.Sprintf(
		"the process running this job died, or lost its lease, %d times", q.crashes))
	part := r.grants[:min(len(r.grants), maxReclaim)]
	args := scripts.Reclaim.Args(2*len(part),
		scripts.Arg("protocol", layout.Protocol), scripts.Arg("session", r.session), scripts.Arg("crash_limit", q.crashes), scripts.Arg("last_error", why),
		scripts.Arg("keep_jobs", q.kept.Jobs), scripts.Arg("keep_bytes", q.kept.Bytes), scripts.Arg("keep_us", q.kept.Age.Microseconds()),
		scripts.Arg("room", maxLost), scripts.Arg("details", scripts.Flag(r.details)), scripts.Arg("channel", q.keys.Channel(r.session)),
		scripts.Arg("ttl", q.ttl.Microseconds()), scripts.Arg("apart", Apart(q.ttl).Microseconds()), scripts.Arg("newest", r.newest))
	for _, g := range part {
		args = append(args, g.ID, g.Value)
	}
	reply, err := scripts.Reclaim.Run(ctx, q.rdb, scripts.Reclaim.Keys(&q.keys, q.keys.Inflight(r.session)), args)
	if err != nil {
		return Reclaimed{}, err
	}
	res, done, err := parseReclaim(reply, q.name)
	if err != nil {
		return Reclaimed{}, err
	}
	r.grants = r.grants[min(max(done, 0), len(part)):]
	res.Done = res.Left == 0 || len(r.grants) == 0
	return res, nil
}

// readAll reads what the session has, page by page, and sorts it.
func (r *Recovery) readAll(ctx context.Context) error {
	key := r.q.keys.Inflight(r.session)
	grants := make(map[string]facts.Grant) // HSCAN may name a field twice
	for cursor := uint64(0); ; {
		page, next, err := r.q.rdb.HScan(ctx, key, cursor, "", pageSize).Result()
		if err != nil {
			scripts.SeekMaster(ctx, r.q.rdb, err)
			return err
		}
		for pair := range slices.Chunk(page, 2) {
			if len(pair) == 2 {
				grants[pair[0]] = facts.Grant{ID: pair[0], Value: pair[1], Token: facts.TokenOf(pair[1])}
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	r.grants = make([]facts.Grant, 0, len(grants))
	for _, g := range grants {
		r.grants = append(r.grants, g)
	}
	slices.SortFunc(r.grants, func(a, b facts.Grant) int {
		return cmp.Or(cmp.Compare(b.Token, a.Token), cmp.Compare(a.ID, b.ID))
	})
	if len(r.grants) > 0 {
		r.newest = r.grants[0].Token
	}
	return nil
}

func parseReclaim(r *scripts.Reply, queue string) (res Reclaimed, done int, err error) {
	if err := r.Status("ok", "alive", "other"); err != nil {
		return Reclaimed{}, 0, err
	}
	if r.Str(0) != "ok" {
		return Reclaimed{}, 0, nil
	}
	res = Reclaimed{Left: int(r.Int(1)), At: time.UnixMicro(r.Int(2)), Returned: r.Strs(4)}
	done = int(r.Int(3))
	res.Dead, res.Lost = lostOf(r, 5, queue), lostOf(r, 6, queue)
	if len(r.List) > 7 {
		res.Cancelled = lostOf(r, 7, queue)
	}
	if r.Err != nil {
		return Reclaimed{}, 0, r.Err
	}
	return res, done, nil
}

// lostOf reads a list of an ID, a token, a record and a span for each delivery.
func lostOf(r *scripts.Reply, i int, queue string) []Delivery {
	list := r.Strs(i)
	if len(list)%4 != 0 {
		r.Fail(i, fmt.Sprintf("a list of %d, not of fours", len(list)))
		return nil
	}
	ds := make([]Delivery, 0, len(list)/4)
	for l := range slices.Chunk(list, 4) {
		job := &signalbox.Job{ID: l[0], Queue: queue, Token: facts.TokenOf(l[1])}
		ds = append(ds, Delivery{Job: job, Err: wire.Decode([]byte(l[2]), job), Span: l[3]})
	}
	return ds
}
