package worker

import (
	"context"
	"fmt"
	"slices"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
)

// LockBy runs the handler under a lock that is named after the job's arguments. Jobs with the same name exclude each other, as
// with [middleware.Lock] and [middleware.LockNameFunc]. The lock's key is [middleware.KeyPrefix] followed by the name. LockBy takes
// the options of middleware.Lock, except those that set the name.
//
// The arguments are decoded once, at the lock's place among the middleware of this kind. Middleware that changes a payload must
// stand before it. If the arguments are refused, the lock is not requested.
//
// LockBy's T must be the T of [Handle], which panics otherwise. name is called concurrently.
func LockBy[T signalbox.Args](locker lock.Locker, name func(args T) string, opts ...middleware.LockOption) Option {
	if locker == nil || name == nil {
		panic("worker: LockBy without a locker or a function that names the lock")
	}
	return func(k *kind) {
		h, ok := k.handler.(*typed[T])
		if !ok {
			panic(fmt.Sprintf("worker: Handle for kind %s with LockBy for arguments of type %T; they must be of the handler's type", k.name, *new(T)))
		}
		h.early = true
		k.middleware = append(k.middleware, func(next signalbox.Handler) signalbox.Handler {
			return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
				ctx, args, err := h.decodeEarly(ctx, job)
				if err != nil {
					return err
				}
				named := append(slices.Clip(opts), middleware.LockName(name(args)))
				return middleware.Lock(locker, named...)(next).Handle(ctx, job)
			})
		})
	}
}
