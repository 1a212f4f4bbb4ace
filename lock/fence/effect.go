package fence

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox"
)

// An Effect names an effect for [Guard.Once]. A handler of a job needs none: the job is in its context. Give one to
// other code by [WithEffect], such as a server whose clients send an idempotency key.
type Effect struct {
	// Namespace keeps equal keys of different producers apart. It has at most 255 bytes.
	Namespace string
	// Key names the effect: 1 to 640 bytes. It is the same each time that the same thing is asked for.
	Key string
	// Born is when it was first asked for. It must be the same each time. If it is before the horizon, the effect is refused; see [DB.Sweep].
	Born time.Time
	// Token is kept with the record, for people. It may be 0.
	Token int64
}

type effectKey struct{}

// WithEffect returns a context for which [Guard.Once] has this effect, instead of that of a job.
func WithEffect(ctx context.Context, e Effect) context.Context {
	return context.WithValue(ctx, effectKey{}, e)
}

// effectOf returns the effect of the context.
func effectOf(ctx context.Context) (Effect, error) {
	if e, ok := ctx.Value(effectKey{}).(Effect); ok {
		return e, e.check()
	}
	job, ok := signalbox.FromContext(ctx)
	if !ok {
		return Effect{}, invalid("the context has no job; call Once in a handler of a job, or use WithEffect")
	}
	e := Effect{Namespace: job.Namespace, Key: job.EffectKey(), Born: bornOf(job), Token: job.Token}
	return e, e.check()
}

// bornOf returns when the job was to run first: a job that waits for a month isn't old when it begins. It is the same in each delivery, and in copies of the job when it was dead.
func bornOf(job *signalbox.Job) time.Time {
	if !job.Born.IsZero() {
		return job.Born
	}
	return job.EnqueuedAt
}

// Bounds of an effect's names, in bytes.
const (
	maxNamespace = 255
	maxEffect    = 640
	maxStep      = 128
)

func (e Effect) check() error {
	switch {
	case len(e.Namespace) > maxNamespace || e.Namespace != "" && !printable(e.Namespace):
		return invalid("the effect's Namespace has %d bytes; want at most %d of printable ASCII without spaces", len(e.Namespace), maxNamespace)
	case len(e.Key) > maxEffect || !printable(e.Key):
		return invalid("the effect's Key has %d bytes; want 1 to %d of printable ASCII without spaces", len(e.Key), maxEffect)
	case e.Born.UnixMicro() <= 0:
		return invalid("the effect %s says no Born, or the job no EnqueuedAt: want the time when it was first asked for", e.Key)
	}
	return nil
}
