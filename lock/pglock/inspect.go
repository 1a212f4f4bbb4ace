package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/signalbox-go/signalbox/lock"
)

// A found is the row of inspect.sql.
type found struct {
	Token int64
	Owner string
	Since time.Time
	Left  int64
}

// Inspect returns who holds the lock of a key. It changes nothing.
func (p *Locker) Inspect(ctx context.Context, key string) (lock.Info, error) {
	if err := checkKey(key); err != nil {
		return lock.Info{}, err
	}
	info := lock.Info{Key: key}
	f, err := call[found](ctx, p, callTimeout, p.sql.inspect, []any{[]byte(key)}, nil)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return info, nil
	case err != nil:
		return lock.Info{}, fmt.Errorf("lock: inspect %.200q: %w", key, err)
	}
	info.Token = f.Token
	if f.Left > 0 {
		info.Held, info.Owner, info.Since, info.For = true, f.Owner, f.Since, time.Duration(f.Left)*time.Microsecond
	}
	return info, nil
}
