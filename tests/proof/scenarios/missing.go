package scenarios

import "errors"

// ErrMissing is returned by [Run] if this machine lacks something that it needs.
var ErrMissing = errors.New("scenarios: something is missing")
