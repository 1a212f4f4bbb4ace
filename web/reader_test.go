package web

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// All who want the same get it from one look, and so do those who come within a second after it, or within four times its length.
func TestReaderSharesALook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReader()
		looks := 0
		get := func(key string) int {
			n, err := read(t.Context(), r, key, time.Second, func(context.Context) (int, error) {
				looks++
				time.Sleep(time.Duration(looks) * 500 * time.Millisecond) // the length of the look
				return looks, nil
			})
			if err != nil {
				t.Error(err)
			}
			return n
		}
		for range 10 {
			go func() {
				if n := get("a"); n != 1 {
					t.Errorf("look %d", n)
				}
			}()
		}
		synctest.Wait()
		time.Sleep(2500*time.Millisecond - time.Millisecond) // it ended after 0.5 s, and counts for 2 s more
		if n := get("a"); n != 1 {
			t.Errorf("look %d", n)
		}
		time.Sleep(2 * time.Millisecond)
		if n := get("a"); n != 2 {
			t.Errorf("look %d", n)
		}
		if n := get("b"); n != 3 || len(r.looks) != 2 {
			t.Errorf("look %d, of %d", n, len(r.looks))
		}
		time.Sleep(time.Hour)
		if get("c"); len(r.looks) != 1 {
			t.Errorf("%d looks are kept", len(r.looks))
		}
	})
}

// A look goes on while anybody waits for it, whoever began it. It ends with the last of them, and the next request makes another.
func TestReaderEndsWithItsRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReader()
		ended := 0
		look := func(ctx context.Context) (int, error) {
			<-ctx.Done()
			ended++
			return 0, ctx.Err()
		}
		first, goFirst := context.WithCancel(t.Context())
		second, goSecond := context.WithCancel(t.Context())
		var errs [2]error
		go func() { _, errs[0] = read(first, r, "a", time.Second, look) }()
		synctest.Wait()
		go func() { _, errs[1] = read(second, r, "a", time.Second, look) }()
		synctest.Wait()
		goFirst()
		synctest.Wait()
		if ended != 0 || !errors.Is(errs[0], context.Canceled) {
			t.Errorf("%d looks ended; %v", ended, errs[0])
		}
		goSecond()
		synctest.Wait()
		if ended != 1 || len(r.looks) != 0 {
			t.Errorf("%d looks ended, %d are kept", ended, len(r.looks))
		}
		if n, err := read(t.Context(), r, "a", time.Second, func(context.Context) (int, error) { return 7, nil }); n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if _, err := read(t.Context(), r, "b", time.Second, look); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a look without end: %v", err)
		}
		time.Sleep(lookTTL + time.Millisecond) // an error counts for no longer, however long it took to come
		if n, err := read(t.Context(), r, "b", time.Minute, func(context.Context) (int, error) { return 8, nil }); n != 8 || err != nil {
			t.Errorf("after an error: %d, %v", n, err)
		}
	})
}
