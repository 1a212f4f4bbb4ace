package lock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/lock"
)

// Errors hold the beginning of a key, however long it is.
func TestErrorsHaveTheBeginningOfAKey(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}) // nothing listens there
	defer client.Close()
	r, err := lock.New(client, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const long = 1 << 20
	for _, key := range []string{strings.Repeat("k", long), strings.Repeat("{", long), strings.Repeat("k", long) + ":fence", "k{" + strings.Repeat("k", long) + "}"} {
		_, acquired := r.TryAcquire(t.Context(), key)
		_, inspected := r.Inspect(t.Context(), key)
		_, twice := r.AcquireAll(t.Context(), key, key)
		for what, err := range map[string]error{
			"TryAcquire": acquired, "Inspect": inspected, "AcquireAll": twice,
			"QuorumError": &lock.QuorumError{Op: "acquire", Key: key, Need: 2}, "Do": lock.Do(t.Context(), r, key, func(context.Context) error { return nil }),
		} {
			if err == nil || len(err.Error()) > 4096 {
				t.Errorf("%s of a key of %d bytes: an error of %d bytes", what, len(key), len(err.Error()))
			}
		}
	}
}
