package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// startRedis starts n Redis servers that keep nothing on disk.
func startRedis(s service, n int) (service, func(), error) {
	var stops []func()
	stop := func() {
		for _, stop := range stops {
			stop()
		}
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return s, stop, servertest.ErrMissing{Program: "redis-server", Package: "redis-server"}
	}
	for range n {
		port := servertest.ReservePort()
		port.First.Close()
		cmd := exec.Command(path, "--port", strconv.Itoa(port.Number), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", os.TempDir())
		ended, err := servertest.Start(cmd)
		if err != nil {
			port.Release()
			return s, stop, err
		}
		stops = append(stops, func() {
			_ = cmd.Process.Kill() // an error means that it has ended already
			<-ended
			port.Release()
		})
		if err := redisServes(port.Addr(), ended); err != nil {
			return s, stop, err
		}
		s.Addrs = append(s.Addrs, port.Addr())
	}
	return s, stop, nil
}

// redisServes waits until a server answers.
func redisServes(addr string, ended <-chan struct{}) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if err = rdb.Ping(context.Background()).Err(); err == nil {
			return nil
		}
		select {
		case <-ended:
			return errors.New("redis-server ended while it was starting")
		default:
		}
	}
	return fmt.Errorf("redis-server does not answer after %v: %w", patience, err)
}
