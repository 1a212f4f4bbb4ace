package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// An Info is what a server says of itself in INFO.
type Info struct {
	Addr   string        // as the client reaches it: host:port, the path of a socket, or "" behind Sentinel
	Took   time.Duration // until the answer was there
	Fields map[string]string
	Wrong  []string // reasons why it would lose jobs
	Doubts []string // less serious problems
}

// Infos asks each master for INFO, by one call each, and returns the answers sorted by address. If some masters don't answer, the error says which. It wraps
// ErrUnsaid if a server denies INFO.
func Infos(ctx context.Context, rdb redis.UniversalClient) ([]Info, error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		info, err := infoOf(ctx, rdb)
		if err != nil {
			return nil, err
		}
		return []Info{info}, nil
	}
	var mu sync.Mutex
	var infos []Info
	var errs []error
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error {
		info, err := infoOf(ctx, rdb)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, fmt.Errorf("the server at %s: %w", rdb.Options().Addr, err))
			return nil
		}
		infos = append(infos, info)
		return nil
	})
	slices.SortFunc(infos, func(a, b Info) int { return cmp.Compare(a.Addr, b.Addr) })
	return infos, errors.Join(append(errs, err)...)
}

func infoOf(ctx context.Context, rdb redis.UniversalClient) (Info, error) {
	began := time.Now()
	text, err := rdb.Info(ctx).Result()
	if err != nil {
		return Info{}, unsaid(ctx, rdb, "INFO", "info", err)
	}
	var f Findings
	f.readInfo(text)
	info := Info{Took: time.Since(began), Fields: fieldsOf(text), Wrong: f.Wrong, Doubts: f.Doubts}
	host, port := Address(rdb)
	if info.Addr = host; port > 0 {
		info.Addr = net.JoinHostPort(host, strconv.Itoa(port))
	}
	return info, nil
}

// fieldsOf returns the fields of INFO.
func fieldsOf(info string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[k] = v
		}
	}
	return fields
}
