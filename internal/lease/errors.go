package lease

import (
	"context"
	"errors"
	"fmt"
)

// The reasons why a lease ended. Package lock exports them under the same names.
var (
	ErrLost    = errors.New("lock: lease lost")
	ErrExpired = fmt.Errorf("%w: it expired", ErrLost)
	ErrTaken   = fmt.Errorf("%w: it is taken by another", ErrLost)
)

// Ended returns the reason why ctx ended: its cause and, if that is another error, its
// Err.
func Ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
