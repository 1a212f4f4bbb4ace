package store

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

const (
	// NoticeEvery is how often a scheduler says that it still has its cron entries.
	NoticeEvery = time.Minute
	// NoticePatience is how long after that a scheduler still counts as one that has the entry.
	NoticePatience = 3 * time.Minute
	// MaxNotices is the most notices in one call.
	MaxNotices = 250
)

// A Notice describes a cron entry, for tools.
type Notice struct {
	plan             Plan
	digest           string
	description, job []byte
}

// A Description says when the ticks of an entry come, for tools.
type Description struct {
	Spec   string
	Zone   string // the name of the time zone of Spec
	Missed string // the policy for missed ticks, in words
	// The rest is "" for an entry without it, and of the form that Entry has.
	Overlap, Jitter, Start, End string
}

// NewNotice returns the notice of the entry with a plan. job is the template of the jobs of its ticks, which NewItem accepts. It is left
// out of the description if sealed is set: then a job for one tick can't be made by others.
func NewNotice(plan Plan, d Description, job *signalbox.Job, sealed bool) Notice {
	e := wire.Entry{Kind: job.Kind, Spec: d.Spec, Zone: d.Zone, Missed: d.Missed, Overlap: d.Overlap, Jitter: d.Jitter, Start: d.Start, End: d.End}
	n := Notice{plan: plan, description: e.Append(nil)}
	if !sealed {
		n.job = append([]byte{wire.Class(job.Priority)}, appendTemplate(nil, job)...)
	}
	sum := sha1.New()
	sum.Write(n.description)
	sum.Write(n.job)
	n.digest = hex.EncodeToString(sum.Sum(nil))
	return n
}

// Name returns the entry's name.
func (n *Notice) Name() string { return n.plan.Entry }

// Digest returns a digest of the name, the plan and the description.
func (n *Notice) Digest() string { return n.plan.Entry + " " + n.plan.Digest + " " + n.digest }

// Size returns approximately how many bytes the notice takes in a call.
func (n *Notice) Size() int {
	return len(n.plan.Entry) + len(n.digest) + len(n.description) + len(n.job)
}

// Announce describes entries, at most MaxNotices of them, in place of what was described before. It registers the queue, too, so that
// tools find it.
func (c *Cron) Announce(ctx context.Context, notices []Notice) error {
	_ = c.q.Presence().Register(ctx) // the user may lack the right to that key
	_, err := c.announce(ctx, notices, true)
	return err
}

// Remind says that the caller still has entries, at most MaxNotices of them. It returns the names of those that the caller must
// announce: Redis has no description of them, or one of a scheduler that has gone.
func (c *Cron) Remind(ctx context.Context, notices []Notice) (lacking []string, err error) {
	return c.announce(ctx, notices, false)
}

func (c *Cron) announce(ctx context.Context, notices []Notice, whole bool) (lacking []string, err error) {
	args := scripts.Announce.Args(5*len(notices), scripts.Arg("protocol", layout.Protocol), scripts.Arg("patience", NoticePatience.Microseconds()))
	for i := range notices {
		n := &notices[i]
		if whole {
			args = append(args, n.plan.Entry, n.plan.Digest, n.digest, n.description, n.job)
		} else {
			args = append(args, n.plan.Entry, n.plan.Digest, n.digest, "", "")
		}
	}
	r, err := scripts.Announce.Run(ctx, c.q.rdb, scripts.Announce.Keys(&c.q.keys), args)
	if err != nil {
		return nil, err
	}
	if err := r.Status("ok"); err != nil {
		return nil, err
	}
	lacking = r.Strs(1)
	return lacking, r.Err
}
