// Package redlock holds locks on several independent Redis masters. It works while a majority of them answers.
//
// A [Locker] is a [lock.Locker]. The locks, the errors and the promises are those of package lock.
//
//	locker, err := redlock.New([]*redis.Options{
//		{Addr: "redis-1:6379"}, {Addr: "redis-2:6379"}, {Addr: "redis-3:6379"},
//	}, redlock.Config{TTL: 10 * time.Second})
//	if err != nil {
//		return err
//	}
//	defer locker.Close()
//
//	err = lock.Do(ctx, locker, "digest", build)
//
// # Caveats
//
//   - Call [Locker.Check] at the start of a program and in health checks. A majority hides what is wrong with the rest.
//   - A node that restarted or lost its memory doesn't count for [Config.MaxTTL]. So restart one node at a time,
//     MaxTTL and a TTL apart. A holder that extends sets its lock again on nodes that were restarted.
//   - The nodes' clocks must agree to within MaxTTL.
//
// docs/locks/redlock.md explains restarts and clocks, and says what breaks a lock.
package redlock
