package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/signalbox-go/signalbox/internal/store"
)

// ErrPartial is wrapped by the error of a listing that some queues are left out of, since they couldn't be read. What comes with the error is right, and not all.
// In a Cluster of which a server is away, it is what the other servers have. The list of queues is on one of them: while that is away, queues are found by the names
// of keys, for which the user needs the right SCAN.
var ErrPartial = errors.New("inspect: some queues are left out")

// A partialError has what kept queues from being read.
type partialError struct{ errs []error }

func (e *partialError) Error() string {
	texts := make([]string, 0, maxNamed+1)
	for n, err := range e.errs {
		if n == maxNamed {
			texts = append(texts, fmt.Sprintf("and %d more", len(e.errs)-n))
			break
		}
		texts = append(texts, strings.TrimPrefix(err.Error(), "inspect: "))
	}
	return ErrPartial.Error() + ": " + strings.Join(texts, "; ")
}

func (e *partialError) Unwrap() []error { return append([]error{ErrPartial}, e.errs...) }

// partial returns an error that wraps [ErrPartial] and these, or nil if none of them is one.
func partial(errs ...error) error {
	var e partialError
	for _, err := range errs {
		if err != nil {
			e.errs = append(e.errs, err)
		}
	}
	if len(e.errs) == 0 {
		return nil
	}
	return &e
}

// names returns the names of the queues, sorted. If the server that has the list is away, they are those that the other servers of a Cluster have keys of, and
// the error says so. Without names the error is all that there is.
func (i *Inspector) names(ctx context.Context) ([]string, error) {
	names, err := store.Queues(ctx, i.rdb, i.cfg.Namespace)
	if err == nil {
		return names, nil
	}
	err = fmt.Errorf("inspect: the names of the queues: %w", err)
	names, silent := store.QueuesThere(ctx, i.rdb, i.cfg.Namespace, err)
	if len(names) == 0 {
		return nil, err
	}
	for _, s := range silent {
		err = fmt.Errorf("%w; %w", err, s)
	}
	return names, fmt.Errorf("%w; these queues were found on other servers of the Cluster", err)
}
