package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The stream of streamsProcess, and its consumer group.
const stream, consumers = "bench:stream", "bench"

// fillStream adds n messages with the payload.
func fillStream(ctx context.Context, rdb *redis.Client, n int) error {
	data, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	if err := rdb.XGroupCreateMkStream(ctx, stream, consumers, "0").Err(); err != nil {
		return err
	}
	for n > 0 {
		now := min(n, 1000)
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range now {
				p.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"p", data}})
			}
			return nil
		})
		if err != nil {
			return err
		}
		n -= now
	}
	return nil
}

// streamsProcess runs messages of a Redis stream that are there already, as a loop that somebody writes without a framework: two readers acknowledge and delete
// what they had, and read so many more, in one pipeline. With handlers each message has a goroutine, which decodes it; without, nothing is done with them.
//
// It does less than a queue: a message whose process dies stays with that consumer, nothing is tried again, and nobody waits for more.
func streamsProcess(most int, handlers bool) measure {
	return func(ctx context.Context, srv *server, n int) (samples [][]float64, err error) {
		rdb := redis.NewClient(&redis.Options{Addr: srv.addr, ContextTimeoutEnabled: true})
		defer rdb.Close()
		if err := fillStream(ctx, rdb, n); err != nil {
			return nil, err
		}
		done := newTally(n)
		m, err := srv.stopwatch(ctx)
		if err != nil {
			return nil, err
		}
		var readers sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			readers.Go(func() { errs[i] = readStream(ctx, rdb, strconv.Itoa(i), most, handlers, done) })
		}
		readers.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		samples, err = m.of(ctx, n, time.Now())
		return samples, errors.Join(err, done.check())
	}
}

// readStream reads messages until there are none.
func readStream(ctx context.Context, rdb *redis.Client, consumer string, most int, handlers bool, done *tally) error {
	var had []string
	for {
		pipe := rdb.Pipeline()
		if len(had) > 0 {
			pipe.XAck(ctx, stream, consumers, had...)
			pipe.XDel(ctx, stream, had...)
		}
		read := pipe.XReadGroup(ctx, &redis.XReadGroupArgs{Group: consumers, Consumer: consumer, Streams: []string{stream, ">"}, Count: int64(most), Block: -1})
		if _, err := pipe.Exec(ctx); errors.Is(err, redis.Nil) {
			return nil
		} else if err != nil {
			return err
		}
		had = had[:0]
		messages := read.Val()[0].Messages
		var handled sync.WaitGroup
		var bad sync.Once
		var failed error
		for i := range messages {
			had = append(had, messages[i].ID)
			if !handlers {
				done.ran()
				continue
			}
			handled.Go(func() {
				var args task
				text, _ := messages[i].Values["p"].(string)
				if err := json.Unmarshal([]byte(text), &args); err != nil {
					bad.Do(func() { failed = fmt.Errorf("message %s: %w", messages[i].ID, err) })
				}
				done.ran()
			})
		}
		handled.Wait()
		if failed != nil {
			return failed
		}
	}
}
