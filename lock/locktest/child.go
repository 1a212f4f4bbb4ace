package locktest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// orderVariable is the environment variable that makes a process a child of [Run], and says what the child must do.
const orderVariable = "SIGNALBOX_LOCKTEST_CHILD"

// marker begins each line of a child's output that is for its parent.
const marker = "locktest: "

// An order says what a child must do.
type order struct {
	Arg string        // for the function that makes its locker
	TTL time.Duration // of its locker
	Key string
}

// A report is what a child says. It has the fields of one step.
type report struct {
	Step string // asking, granted, looked, or failed

	Token int64     // granted
	Until time.Time // granted: by the wall clock
	Error string    // failed

	Ended   string // looked: the context's error; empty if it goes on
	Cause   string // looked: of the end of the context; see verdict
	Extend  string // looked: see verdict
	Release string // looked: see verdict
}

// verdict returns what the parent must know of an error.
func verdict(err error) string {
	switch {
	case err == nil:
		return "nil"
	case errors.Is(err, lock.ErrLost):
		return "ErrLost"
	}
	return err.Error()
}

// Child makes this process one that uses the lock, and exits, if [Run] started it for that. Otherwise it does nothing.
// Call it at the start of TestMain, before anything that is costly. newLocker gets the argument of [Processes].
func Child(newLocker func(arg string, ttl time.Duration) (lock.Locker, error)) {
	text, ok := os.LookupEnv(orderVariable)
	if !ok {
		return
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	var locker lock.Locker
	if err == nil {
		locker, err = newLocker(o.Arg, o.TTL)
	}
	if err != nil {
		say(os.Stdout, report{Step: "failed", Error: "newLocker: " + err.Error()})
		os.Exit(1)
	}
	if !obey(context.Background(), locker, o.Key, os.Stdin, os.Stdout) {
		os.Exit(1)
	}
	os.Exit(0)
}

// obey acquires the lock and holds it until a line comes, or the input ends. Then it looks whether it still has the
// lock. It reports whether the lock was granted.
func obey(ctx context.Context, locker lock.Locker, key string, in io.Reader, out io.Writer) bool {
	say(out, report{Step: "asking"})
	l, err := locker.Acquire(ctx, key)
	if err != nil || l == nil {
		say(out, report{Step: "failed", Error: fmt.Sprintf("Acquire = %v, %v; want a lock", told(l), err)})
		return false
	}
	var r report
	err = lock.Hold(ctx, l, func(ctx context.Context) error {
		say(out, report{Step: "granted", Token: l.Token(), Until: l.Until().Round(0)})
		if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
			return err
		}
		r = report{Step: "looked"}
		if err := ctx.Err(); err != nil { // this comes first: no timer may have had time to end it
			r.Ended, r.Cause = err.Error(), verdict(context.Cause(ctx))
		}
		r.Extend = verdict(l.Extend(context.WithoutCancel(ctx)))
		r.Release = verdict(l.Release(ctx))
		return nil
	})
	if r.Step == "" { // it lost the lock at once, or the parent ended
		r = report{Step: "failed", Error: fmt.Sprintf("Hold = %v", err)}
	}
	say(out, r)
	return true
}

func say(out io.Writer, r report) {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // it has no field that can't be encoded
	}
	_, _ = fmt.Fprintf(out, "%s%s\n", marker, b)
}
