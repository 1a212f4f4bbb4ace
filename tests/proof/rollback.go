package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// snapshot returns the path of the RDB file.
func (s *server) snapshot() string { return filepath.Join(s.dir, "dump.rdb") }

// logFolder returns the folder with the parts of the append-only file.
func (s *server) logFolder() string { return filepath.Join(s.dir, "appendonlydir") }

// back returns how far a server goes back. An append-only file that is synced every second can lose
// up to one second. A snapshot can lose any time.
func back(r *rand.Rand) time.Duration { return between(r, shortest, time.Second) }

// olderSnapshot crashes a server and starts it with a snapshot from before the crash.
func olderSnapshot(ctx context.Context, s *station, r *rand.Rand) (int64, error) {
	whole := context.WithoutCancel(ctx)
	if err := s.server.admin.Save(whole).Err(); err != nil {
		return 0, fmt.Errorf("saving a snapshot: %w", err)
	}
	wait(ctx, back(r))
	s.server.process.kill()
	forgot := monotonic()
	return forgot, s.server.run(whole, fromSnapshot)
}

// shorterLog crashes a server and starts it with its append-only file without the end: the part that
// is not synced when a machine loses its power. (If only the process crashes, none of it is lost.)
func shorterLog(ctx context.Context, s *station, r *rand.Rand) (int64, error) {
	whole := context.WithoutCancel(ctx)
	if err := s.server.admin.ConfigSet(whole, "appendonly", "yes").Err(); err != nil {
		return 0, fmt.Errorf("beginning an append-only file: %w", err)
	}
	if err := s.server.logBegun(whole); err != nil {
		return 0, err
	}
	wait(ctx, back(r))
	path, size, err := s.server.logEnd()
	if err != nil {
		return 0, err
	}
	wait(ctx, back(r))
	s.server.process.kill()
	forgot := monotonic()
	if err := os.Truncate(path, size); err != nil {
		return forgot, err
	}
	if err := s.server.run(whole, fromLog); err != nil {
		return forgot, err
	}
	return forgot, s.server.admin.ConfigSet(whole, "appendonly", "no").Err()
}

// logBegun waits until the server has written its data to its append-only file.
func (s *server) logBegun(ctx context.Context) error {
	for range 1000 {
		info, err := s.admin.Info(ctx, "persistence").Result()
		if err != nil {
			return fmt.Errorf("looking at the append-only file: %w", err)
		}
		if strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0") &&
			strings.Contains(info, "aof_last_bgrewrite_status:ok") {
			return nil
		}
		wait(ctx, 5*time.Millisecond)
	}
	return errors.New("the server does not finish its append-only file")
}

// logEnd returns the newest part of the append-only file, and its size.
func (s *server) logEnd() (path string, size int64, err error) {
	parts, err := filepath.Glob(filepath.Join(s.logFolder(), "*.incr.aof"))
	if err != nil {
		return "", 0, err
	}
	var newest time.Time
	for _, part := range parts {
		info, err := os.Stat(part)
		if err != nil {
			return "", 0, err
		}
		if path == "" || info.ModTime().After(newest) {
			path, size, newest = part, info.Size(), info.ModTime()
		}
	}
	if path == "" {
		return "", 0, fmt.Errorf("there is no append-only file in %s", s.logFolder())
	}
	return path, size, nil
}
