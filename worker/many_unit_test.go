package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/handlerctx"
)

// gathered is what one call got: the numbers of its jobs.
type gathered chan []int

// gather runs deliveries 0..n-1 through a gatherer, each when its time has come, and returns the error of each.
func gather(g *gatherer[tree], n int, ctx func(i int) context.Context, after func(i int) time.Duration) []error {
	errs, done := make([]error, n), make(chan int)
	for i := range n {
		go func() {
			time.Sleep(after(i))
			errs[i] = g.handle(ctx(i), &signalbox.Job{ID: fmt.Sprint(i)}, tree{N: i})
			done <- i
		}()
	}
	for range n {
		<-done
	}
	return errs
}

func newGatherer(most int, wait time.Duration, fn func(context.Context, []*Each[tree]) error) *gatherer[tree] {
	return &gatherer[tree]{many: many{most, wait}, fn: fn, calls: make(map[*queue]*shared[tree])}
}

func numbers(jobs []*Each[tree]) (all []int) {
	for _, e := range jobs {
		all = append(all, e.Args.N)
	}
	slices.Sort(all)
	return all
}

func at(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// A call begins when it is full, or when its first job has waited for long enough.
func TestGathering(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n, most int
		after   func(int) time.Duration
		want    [][]int
		took    time.Duration
	}{
		"full":             {3, 3, at(0), [][]int{{0, 1, 2}}, 0},
		"one":              {1, 3, at(0), [][]int{{0}}, time.Second},
		"one is enough":    {2, 1, at(0), [][]int{{0}, {1}}, 0},
		"some":             {2, 3, func(i int) time.Duration { return time.Duration(i) * 900 * time.Millisecond }, [][]int{{0, 1}}, time.Second},
		"one comes late":   {2, 3, func(i int) time.Duration { return time.Duration(i) * 1100 * time.Millisecond }, [][]int{{0}, {1}}, 2100 * time.Millisecond},
		"full, and others": {5, 2, func(i int) time.Duration { return time.Duration(i) * time.Millisecond }, [][]int{{0, 1}, {2, 3}, {4}}, 1004 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := make(gathered, c.n)
				g := newGatherer(c.most, time.Second, func(_ context.Context, jobs []*Each[tree]) error { calls <- numbers(jobs); return nil })
				begin := time.Now()
				for i, err := range gather(g, c.n, func(int) context.Context { return t.Context() }, c.after) {
					if err != nil {
						t.Errorf("job %d: %v", i, err)
					}
				}
				if took := time.Since(begin); took != c.took {
					t.Errorf("it took %v, want %v", took, c.took)
				}
				close(calls)
				var got [][]int
				for call := range calls {
					got = append(got, call)
				}
				slices.SortFunc(got, slices.Compare)
				if fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("the calls had %v, want %v", got, c.want)
				}
				if len(g.calls) != 0 {
					t.Errorf("%d calls are left", len(g.calls))
				}
			})
		})
	}
}

var errLeft = errors.New("it was cancelled")

// Each job has the outcome that the function gave it, or what the function returns, also if it panics or ends its goroutine.
func TestOutcomesOfMany(t *testing.T) {
	t.Parallel()
	failed, own := errors.New("failed"), errors.New("own")
	for name, c := range map[string]struct {
		end  func() error
		want string
	}{
		"nil":    {func() error { return nil }, "<nil>"},
		"error":  {func() error { return failed }, "failed"},
		"panic":  {func() error { panic("bang") }, "handler panicked: bang"},
		"goexit": {func() error { runtime.Goexit(); return nil }, "the handler called runtime.Goexit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGatherer(3, time.Second, func(_ context.Context, jobs []*Each[tree]) error {
					for _, e := range jobs {
						switch e.Args.N {
						case 0:
							e.Return(own)
							e.Return(nil) // too late
						case 1:
							e.Return(nil)
						}
					}
					clear(jobs) // its own copy
					return c.end()
				})
				errs := gather(g, 3, func(int) context.Context { return t.Context() }, at(0))
				if errs[0] != own || errs[1] != nil || fmt.Sprint(errs[2]) != c.want {
					t.Errorf("the outcomes are %v", errs)
				}
				if p, ok := errors.AsType[*signalbox.PanicError](errs[2]); name == "panic" && (!ok || !strings.Contains(string(p.Stack), "TestOutcomesOfMany")) {
					t.Errorf("the panic is %#v", errs[2])
				}
			})
		})
	}
}

// A job that has its outcome ends while the function goes on.
func TestReturnAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer(2, time.Second, func(_ context.Context, jobs []*Each[tree]) error {
			for _, e := range jobs {
				if e.Args.N == 0 {
					e.Return(nil)
				}
			}
			time.Sleep(time.Hour)
			return nil
		})
		begin, took := time.Now(), make([]time.Duration, 2)
		done := make(chan bool)
		for i := range 2 {
			go func() {
				_ = g.handle(t.Context(), &signalbox.Job{}, tree{N: i})
				took[i] = time.Since(begin)
				done <- true
			}()
		}
		<-done
		<-done
		if took[0] != 0 || took[1] != time.Hour {
			t.Errorf("they took %v", took)
		}
	})
}

// The last job of a call ends with the function, so that a worker's Run waits for that.
func TestLastOfMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := false
		g := newGatherer(2, time.Second, func(_ context.Context, jobs []*Each[tree]) error {
			for _, e := range jobs {
				e.Return(errLeft)
			}
			time.Sleep(time.Hour)
			over = true
			return nil
		})
		begin := time.Now()
		errs := gather(g, 2, func(int) context.Context { return t.Context() }, at(0))
		if !over || time.Since(begin) != time.Hour || errs[0] != errLeft || errs[1] != errLeft {
			t.Errorf("the function is over: %v, after %v, and the outcomes are %v", over, time.Since(begin), errs)
		}
	})
}

// A job whose context has ended when its call begins is not in it, though it has not left yet.
func TestEndedWhenTheCallBegins(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errLeft)
	for _, others := range []int{0, 1} {
		var in []int
		g := newGatherer(1+others, time.Minute, func(_ context.Context, jobs []*Each[tree]) error { in = numbers(jobs); return nil })
		late := &Each[tree]{Job: &signalbox.Job{}, Args: tree{N: 7}, ctx: ended, done: make(chan struct{})}
		c := g.join(late, nil)
		for i := range others {
			if err := g.handle(t.Context(), &signalbox.Job{}, tree{N: i}); err != nil {
				t.Error(err)
			}
		}
		<-late.done
		if late.err != errLeft || len(in) != others || slices.Contains(in, 7) || !c.begun {
			t.Errorf("beside %d others: %v, the call has %v", others, late.err, in)
		}
	}
}

// A job whose context ends before the call isn't in it. One whose context ends later is, and waits for its outcome. The context of the call ends with the last
// of them.
func TestContextsOfMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ends := []time.Duration{time.Minute / 2, 2 * time.Minute, 3 * time.Minute}
		var in []int
		var ended time.Duration
		var cause error
		begin := time.Now()
		g := newGatherer(4, time.Minute, func(ctx context.Context, jobs []*Each[tree]) error {
			in = numbers(jobs)
			if e := jobs[0]; e.Context().Err() != nil || e.Job == nil {
				t.Error("the first job's context has ended")
			}
			<-ctx.Done()
			ended, cause = time.Since(begin), context.Cause(ctx)
			return nil
		})
		errs := gather(g, 3, func(i int) context.Context {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(ends[i], func() { cancel(fmt.Errorf("%w %d", errLeft, i)) })
			return ctx
		}, at(0))
		if !errors.Is(errs[0], errLeft) || errs[1] != nil || errs[2] != nil {
			t.Errorf("the outcomes are %v", errs)
		}
		if fmt.Sprint(in) != "[1 2]" || ended != 3*time.Minute || fmt.Sprint(cause) != "it was cancelled 2" {
			t.Errorf("the call had %v, its context ended after %v with %v", in, ended, cause)
		}
	})
}

// All leave: there is no call, and nothing is left.
func TestAllLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer(3, time.Minute, func(context.Context, []*Each[tree]) error { t.Error("it is called"); return nil })
		errs := gather(g, 2, func(int) context.Context {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errLeft) })
			return ctx
		}, at(0))
		if errs[0] != errLeft || errs[1] != errLeft || len(g.calls) != 0 {
			t.Errorf("the outcomes are %v, %d calls are left", errs, len(g.calls))
		}
		time.Sleep(2 * time.Minute)
	})
}

// A worker that shuts down waits for no more jobs.
func TestDrainWhileGathering(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		draining := make(chan struct{})
		g := newGatherer(3, time.Minute, func(context.Context, []*Each[tree]) error { return nil })
		time.AfterFunc(time.Second, func() { close(draining) })
		begin := time.Now()
		errs := gather(g, 2, func(int) context.Context { return handlerctx.WithDraining(t.Context(), draining) }, at(0))
		if took := time.Since(begin); took != time.Second || errs[0] != nil || errs[1] != nil {
			t.Errorf("it took %v: %v", took, errs)
		}
	})
}
