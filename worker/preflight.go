package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
)

// replicaPatience is how long a replica may stay one before it is refused: behind Sentinel, and
// in a Cluster, a client can see the old role for a moment during a failover.
const replicaPatience = 5 * time.Second

// preflight waits until Redis answers, and refuses one that would lose jobs. Managed
// servers hide parts of INFO; what isn't said isn't checked.
func preflight(ctx context.Context, rdb redis.UniversalClient, log *slog.Logger) error {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	start := time.Now()
	for {
		err := inspect(ctx, rdb)
		var wrong *misconfigured
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &wrong) && (!wrong.passing || time.Since(start) > replicaPatience):
			return err
		}
		wait := b.NextBackOff()
		log.WarnContext(ctx, "signalbox: waiting for Redis", "error", err, "next_try", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// inspect checks each master.
func inspect(ctx context.Context, rdb redis.UniversalClient) error {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return inspectServer(ctx, rdb)
	}
	var mu sync.Mutex
	var errs []error
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		if err := inspectServer(ctx, c); err != nil {
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

func inspectServer(ctx context.Context, rdb redis.Cmdable) error {
	info, err := rdb.Info(ctx).Result()
	if redis.HasErrorPrefix(err, "NOPERM") {
		return nil // what isn't said isn't checked
	}
	if err != nil {
		if isAuth(err) {
			return &misconfigured{problems: []string{"it refused the credentials: " + err.Error()}}
		}
		return err
	}
	return inspectInfo(info)
}

func isAuth(err error) bool {
	msg := err.Error()
	for _, prefix := range []string{"NOAUTH", "WRONGPASS", "ERR invalid password", "ERR AUTH"} {
		if strings.HasPrefix(msg, prefix) {
			return true
		}
	}
	return false
}

func inspectInfo(info string) error {
	f := make(map[string]string)
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			f[k] = v
		}
	}
	wrong := &misconfigured{}
	if v := f["redis_version"]; v != "" {
		if major, err := strconv.Atoi(strings.SplitN(v, ".", 2)[0]); err == nil && major < 7 {
			wrong.add("it is version %s; Signalbox needs 7.0 or newer", v)
		}
	}
	if policy := f["maxmemory_policy"]; policy != "" && policy != "noeviction" && f["maxmemory"] != "0" {
		wrong.add("its maxmemory-policy is %s, so it deletes jobs and leases when memory is short; set maxmemory-policy noeviction", policy)
	}
	if f["role"] == "slave" {
		wrong.passing = len(wrong.problems) == 0
		wrong.add("it is a replica, and refuses writes; connect to the master, or through Sentinel or a Cluster client")
	}
	if len(wrong.problems) == 0 {
		return nil
	}
	return wrong
}

// A misconfigured server is refused with everything that is wrong with it.
type misconfigured struct {
	problems []string
	passing  bool // it may become right by itself
}

func (m *misconfigured) add(format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
}

func (m *misconfigured) Error() string {
	return "signalbox: this Redis can't be used: " + strings.Join(m.problems, "; ")
}

func (m *misconfigured) Unwrap() error { return signalbox.ErrInvalid }
