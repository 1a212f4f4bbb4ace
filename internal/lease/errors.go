package lease

import (
	"context"
	"errors"
	"fmt"
)

// Why a lease ended. Package lock has the same under its own name.
var (
	ErrLost    = errors.New("lock: lease lost")
	ErrExpired = fmt.Errorf("%w: it expired", ErrLost)
	ErrTaken   = fmt.Errorf("%w: it is taken by another", ErrLost)
)

// Ended returns why ctx ended: its cause and, if that is another error, its Err.
func Ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
