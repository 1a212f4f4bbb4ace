package scenarios

import (
	"errors"
	"fmt"
	"time"
)

// A grant is a lock that a client got. It has the times when the client began to ask and when
// it had the lock, on a clock that all processes share.
type grant struct {
	by, key     string
	token       int64
	began, done time.Duration
}

// grants are all grants of a play.
type grants []grant

func (all *grants) add(g grant) { *all = append(*all, g) }

// check returns an error about tokens that were granted twice, and tokens that are not in
// order: if one grant came before another was asked for, its token must be smaller.
func (all grants) check() error {
	var errs []error
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.key != b.key {
				continue
			}
			if a.token == b.token {
				errs = append(errs, fmt.Errorf("token %d was granted twice, to %s and %s", a.token, a.by, b.by))
			}
			if a.done < b.began && a.token > b.token || b.done < a.began && b.token > a.token {
				errs = append(errs, fmt.Errorf("token %d of %s and token %d of %s are not in the order of the grants", a.token, a.by, b.token, b.by))
			}
		}
	}
	return errors.Join(errs...)
}
