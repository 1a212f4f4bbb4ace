package scenarios

import "errors"

// ErrMissing is what [Run] returns where this machine lacks what it needs.
var ErrMissing = errors.New("scenarios: something is missing")
