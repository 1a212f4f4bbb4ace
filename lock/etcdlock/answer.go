package etcdlock

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
)

var errClosed = errors.New("the etcd client is closed")

// answer returns the error of a call for people: it says that the caller's ctx ended, that etcd didn't answer in the time
// of callCtx, or what the user can do.
func (r *Locker) answer(ctx, callCtx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, lock.ErrLost):
		return err
	case ctx.Err() != nil:
		return lease.Ended(ctx)
	case r.client.Ctx().Err() != nil:
		return errClosed
	case callCtx.Err() != nil:
		return fmt.Errorf("no answer from etcd in time (a call has up to %v): %w", callTimeout, context.DeadlineExceeded)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("the user of the etcd client needs the permission to read and write the keys with the prefix %q: %w", r.prefix, err)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("this etcd wants a user name and a password; set them in the options of the etcd client: %w", err)
	}
	return err
}

// permanent reports whether the same call would fail again.
func permanent(err error) bool {
	if errors.Is(err, errClosed) || errors.Is(err, clientv3.ErrNoAvailableEndpoints) || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return true
	}
	var known rpctypes.EtcdError
	code := codes.OK
	if errors.As(err, &known) {
		code = known.Code()
	} else if s, ok := status.FromError(err); ok {
		code = s.Code()
	}
	switch code {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.Unimplemented:
		return true
	}
	return false
}
