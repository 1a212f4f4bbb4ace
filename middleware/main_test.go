package middleware

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var errMine = errors.New("mine")

type valueKey struct{}

// own is a job's own lease, as made by a worker.
type own struct{ *lease.Validity }

func (own) Key() string  { return "own" }
func (own) Token() int64 { return 1 }

// delivery returns a context as made by a worker, over the validity of its session.
func delivery(t *testing.T, ttl time.Duration) (context.Context, *lease.Validity) {
	t.Helper()
	v := lease.NewValidity(t.Context())
	if !v.Extend(lease.Now(), ttl) {
		t.Fatal("no validity")
	}
	t.Cleanup(func() { v.End(nil) })
	return lock.NewContext(v.Context(), own{v}), v
}

func run(ctx context.Context, job *signalbox.Job, mw signalbox.Middleware, h signalbox.HandlerFunc) error {
	return mw(h).Handle(ctx, job)
}

func handlerMustNotRun(t *testing.T) signalbox.HandlerFunc {
	return func(context.Context, *signalbox.Job) error {
		t.Error("the handler ran")
		return nil
	}
}
