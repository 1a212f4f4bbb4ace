package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A quota is an error with its own ErrorType.
type quota struct{}

func (quota) Error() string     { return "no more today" }
func (quota) ErrorType() string { return "quota" }

// A charge is an error of a user. It says more than the error that it wraps.
type charge struct{ err error }

func (c *charge) Error() string { return "charge: " + c.err.Error() }
func (c *charge) Unwrap() error { return c.err }

// slow is a timeout of a user.
type slow struct{}

func (slow) Error() string { return "slow" }
func (slow) Timeout() bool { return true }

// Each error has the expected error.type.
func TestErrorType(t *testing.T) {
	t.Parallel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	boom, parse := errors.New("boom"), &time.ParseError{}
	_, refused := net.Dial("tcp", nobody)
	_, refusedHTTP := http.Get("http://" + nobody)
	request, err := http.NewRequestWithContext(late, http.MethodGet, "http://"+nobody, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	_, lateHTTP := http.DefaultClient.Do(request)
	_, scheme := http.Get("nothing://x")
	_, lookup := (&net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, refused }}).LookupHost(t.Context(), "example.test")
	rdb := redis.NewClient(&redis.Options{Addr: nobody, MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	mute := proxy.ClientWith(func(o *redis.UniversalOptions) { o.ReadTimeout, o.MaxRetries = time.Second, -1 })
	if err := mute.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	proxy.Pause()
	silence := mute.Ping(t.Context()).Err()
	proxy.Resume()
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{boom, "*errors.errorString"},
		{fmt.Errorf("it went %w", boom), "*errors.errorString"},
		{parse, "*time.ParseError"},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", parse)), "*time.ParseError"},
		{quota{}, "quota"},
		{fmt.Errorf("%w: %w", parse, quota{}), "quota"},
		{&charge{quota{}}, "quota"},

		// Among several errors, the first with its own type counts.
		{fmt.Errorf("a: %w: %w", boom, parse), "*time.ParseError"},
		{errors.Join(boom, parse), "*time.ParseError"},
		{errors.Join(fmt.Errorf("a: %w: %w", boom, boom), &charge{boom}, parse), "*telemetry_test.charge"},
		{errors.Join(boom, boom), "*errors.errorString"},
		{fmt.Errorf("a: %w", nil), "*fmt.wrapError"},

		{late.Err(), "timeout"},
		{fmt.Errorf("%w: %w", boom, late.Err()), "timeout"},
		{lateHTTP, "timeout"},
		{silence, "timeout"},
		{slow{}, "timeout"},
		{&charge{late.Err()}, "*telemetry_test.charge"},

		{stopped(t.Context()).Err(), "cancelled"},
		{fmt.Errorf("%w: %w", boom, context.Canceled), "cancelled"},

		{refused, "connection"},
		{fmt.Errorf("call: %w", refused), "connection"},
		{refusedHTTP, "connection"},
		{lookup, "connection"},
		{rdb.Ping(t.Context()).Err(), "connection"},
		{&charge{refused}, "*telemetry_test.charge"},

		{scheme, "*url.Error"},
		{io.EOF, "*errors.errorString"},
		{&fs.PathError{Err: boom}, "*fs.PathError"},
	} {
		if got := telemetry.ErrorType(c.err); got != c.want {
			t.Errorf("%T %v: %q, want %q", c.err, c.err, got, c.want)
		}
	}
}
