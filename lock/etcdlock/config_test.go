package etcdlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/signalbox-go/signalbox/lock"
)

// Every mistake is named, with its field.
func TestConfig(t *testing.T) {
	t.Parallel()
	client := clientv3.NewCtxClient(t.Context())
	for name, c := range map[string]struct {
		config Config
		says   []string
	}{
		"defaults":            {Config{}, nil},
		"bounds":              {Config{TTL: time.Second, Owner: "a", Prefix: "/"}, nil},
		"the longest TTL":     {Config{TTL: 24 * time.Hour, Prefix: "/locks/of/us/"}, nil},
		"too short":           {Config{TTL: time.Second - 1}, []string{"TTL", "1s to 24h"}},
		"too long":            {Config{TTL: 24*time.Hour + 1}, []string{"TTL"}},
		"negative":            {Config{TTL: -time.Second}, []string{"TTL"}},
		"owner":               {Config{Owner: "näme"}, []string{"Owner"}},
		"prefix without end":  {Config{Prefix: "locks"}, []string{"Prefix", `"locks"`}},
		"prefix with two":     {Config{Prefix: "a//b/"}, []string{"Prefix"}},
		"prefix ends in two":  {Config{Prefix: "a//"}, []string{"Prefix"}},
		"prefix not ASCII":    {Config{Prefix: "ä/"}, []string{"Prefix"}},
		"prefix too long":     {Config{Prefix: strings.Repeat("a", 256) + "/"}, []string{"Prefix"}},
		"several at one time": {Config{TTL: 1, Prefix: "a", Owner: "\n"}, []string{"TTL", "Prefix", "Owner"}},
	} {
		r, err := New(client, c.config)
		if (err == nil) != (len(c.says) == 0) || (r == nil) != (err != nil) {
			t.Errorf("%s: %v, %v", name, r, err)
			continue
		}
		if err != nil && !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: %v is no ErrInvalid", name, err)
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q doesn't say %q", name, err, s)
			}
		}
	}
	if _, err := New(nil, Config{TTL: 1}); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "client") || !strings.Contains(err.Error(), "TTL") {
		t.Errorf("no client: %v", err)
	}
}

// The lease is never shorter than the TTL.
func TestSeconds(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]int64{time.Second: 1, time.Second + 1: 2, 1500 * time.Millisecond: 2, 2 * time.Second: 2, 24 * time.Hour: 86400} {
		if got := seconds(ttl); got != want {
			t.Errorf("%v: %d s, want %d", ttl, got, want)
		}
	}
}
