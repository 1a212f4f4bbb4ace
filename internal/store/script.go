package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scripts embed.FS

var (
	enqueueScript = load("enqueue")
	claimScript   = load("claim")
	renewScript   = load("renew")
	reclaimScript = load("reclaim")
	closeScript   = load("close")
	sweepScript   = load("sweep")
	reportScript  = load("report")
	depthScript   = load("depth")
)

func load(name string) *redis.Script { return redis.NewScript(source(name)) }

func source(name string) string {
	return read("lib") + "\n" + read(name)
}

func read(name string) string {
	b, err := scripts.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}

// run runs a script and returns its reply, which is read with the methods of reply.
func run(ctx context.Context, rdb redis.Scripter, s *redis.Script, keys []string, args []any) (*reply, error) {
	v, err := s.Run(ctx, rdb, keys, args...).Result()
	if err != nil {
		seekMaster(ctx, rdb, err)
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return &reply{list: []any{v}}, nil
	}
	return &reply{list: list}, nil
}

// seekMaster makes a Cluster client look who serves which slots, after a call without an answer.
// When a master has died, go-redis does so only once a minute.
func seekMaster(ctx context.Context, rdb any, err error) {
	var answer redis.Error
	if errors.As(err, &answer) && !redis.HasErrorPrefix(err, "CLUSTERDOWN") {
		return
	}
	if cluster, ok := rdb.(interface{ ReloadState(ctx context.Context) }); ok {
		cluster.ReloadState(ctx)
	}
}

// A reply is read field by field; whatever the server sent, reading doesn't panic. The first
// field of the wrong type is kept as the error.
type reply struct {
	list []any
	err  error
}

func (r *reply) at(i int) any {
	if i >= len(r.list) {
		r.fail(i, "nothing")
		return nil
	}
	return r.list[i]
}

func (r *reply) fail(i int, got string) {
	if r.err == nil {
		r.err = fmt.Errorf("store: field %d of the script's reply is %s: is another program writing to this queue's keys?", i, got)
	}
}

// status reads the first field, which is one of want.
func (r *reply) status(want ...string) error {
	switch s := r.str(0); {
	case r.err != nil:
		return r.err
	case s == "stale":
		return ErrStale
	case !slices.Contains(want, s):
		r.fail(0, fmt.Sprintf("%.40q", s))
		return r.err
	}
	return nil
}

func (r *reply) str(i int) string {
	s, ok := r.at(i).(string)
	if !ok && r.err == nil {
		r.fail(i, fmt.Sprintf("%T, not a string", r.list[i]))
	}
	return s
}

func (r *reply) int(i int) int64 {
	n, ok := r.at(i).(int64)
	if !ok && r.err == nil {
		r.fail(i, fmt.Sprintf("%T, not an integer", r.list[i]))
	}
	return n
}

func (r *reply) strs(i int) []string {
	list := r.array(i)
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for j, v := range list {
		s, ok := v.(string)
		if !ok {
			r.fail(i, fmt.Sprintf("a list with %T, not strings", v))
		}
		out[j] = s
	}
	return out
}

func (r *reply) array(i int) []any {
	list, ok := r.at(i).([]any)
	if !ok && r.err == nil {
		r.fail(i, fmt.Sprintf("%T, not a list", r.list[i]))
	}
	return list
}
