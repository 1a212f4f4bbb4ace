//go:build !linux

package scenarios

import (
	"context"
	"fmt"
	"io"
)

// Run returns an [ErrMissing].
func Run(context.Context, io.Writer) (passed, total int, err error) {
	return 0, 4, fmt.Errorf("%w: it needs Linux, for LD_PRELOAD and the states in /proc", ErrMissing)
}

// ChildMain returns false.
func ChildMain() bool { return false }
