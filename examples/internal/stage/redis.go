package stage

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
)

// Env is the environment variable with the URL of a Redis.
const Env = "REDIS_URL"

// A Redis has the jobs of one run.
type Redis struct {
	Client    *redis.Client
	Namespace string // of this run alone

	embedded *embedded.Server // nil with a URL
}

// Open returns the Redis at a URL (redis://, rediss:// or unix://), or one inside this process if the URL is "". The namespace begins with the name of the example.
// It connects to nothing.
func Open(url, example string) (*Redis, error) {
	r := &Redis{Namespace: example + "-" + strings.ToLower(rand.Text()[:12])}
	if url == "" {
		srv, err := embedded.Start()
		if err != nil {
			return nil, err
		}
		r.embedded, url = srv, "redis://"+srv.Addr()
	}
	opt, err := redis.ParseURL(url)
	if err != nil { // without the URL, which may contain a password
		return nil, errors.New(Env + " can't be read; want redis://host:6379/0, rediss://... or unix:///path/to.sock")
	}
	opt.ContextTimeoutEnabled = true // else go-redis ignores the deadlines of contexts
	r.Client = redis.NewClient(opt)
	return r, nil
}

// Close deletes the keys of the namespace, and closes the client.
func (r *Redis) Close() error {
	if r.embedded != nil {
		return errors.Join(r.Client.Close(), r.embedded.Close())
	}
	return errors.Join(r.clean(), r.Client.Close())
}

// clean deletes the keys of the namespace, in at most ten seconds. docs/wire.md lists them.
func (r *Redis) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	keys := r.Client.Scan(ctx, 0, "signalbox:{"+r.Namespace+":*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := r.Client.Unlink(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}
