package web

import (
	"cmp"
	"context"
	"html/template"
	"slices"
	"strconv"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

// mostLocks is how many locks the page shows.
const mostLocks = 200

// A locksPage has the locks that are held, if somebody asked for them.
type locksPage struct {
	Pattern string
	Asked   bool
	Says    string
	Locks   []lockRow
	Err     string
	Command string
}

// A lockRow is a lock that is held.
type lockRow struct {
	Key, Owner, Token string
	Held, Left        template.HTML
}

// What one look at the locks has found.
type locksLook struct {
	locks []inspect.Lock
	cut   bool
	at    time.Time
	took  time.Duration
}

// locks is the page of locks. A look goes through the names of all keys of Redis, so it is made only when somebody asks for it.
func (v *visit) locks() (answer, error) {
	if !v.scope.All {
		return answer{}, errNoPage
	}
	form := v.URL.Query()
	p := &locksPage{Pattern: cmp.Or(form.Get("key"), "*"), Asked: form.Has("key"), Command: shellWords("signalbox", "lock", "ls", cmp.Or(form.Get("key"), "*"))}
	a := answer{name: "locks", title: "Locks", cur: "Locks", body: p, still: true}
	if !p.Asked {
		return a, nil
	}
	look, err := read(v.Context(), v.looks, "locks\x00"+p.Pattern, lookTTL, func(ctx context.Context) (*locksLook, error) {
		l := &locksLook{at: time.Now()}
		for lock, err := range v.ins.Locks(ctx, p.Pattern) {
			if err != nil {
				return nil, err
			}
			if len(l.locks) == mostLocks {
				l.cut = true
				break
			}
			l.locks = append(l.locks, lock)
		}
		l.took = time.Since(l.at)
		return l, nil
	})
	if err != nil {
		p.Err = v.reason(err)
		return a, nil
	}
	slices.SortFunc(look.locks, func(a, b inspect.Lock) int { return cmp.Compare(a.Key, b.Key) })
	look.locks = slices.CompactFunc(look.locks, func(a, b inspect.Lock) bool { return a.Key == b.Key }) // a look may see one twice
	p.Says = counted(int64(len(look.locks)), "lock") + " held"
	if look.cut {
		p.Says = "The first " + p.Says + "; there are more. Narrow the keys, or use the command below"
	}
	p.Says += ". The look took " + span(look.took.Round(time.Millisecond)) + "."
	a.sheet = look.sheet
	for _, l := range look.locks {
		p.Locks = append(p.Locks, lockRowOf(&l, look.at))
	}
	return a, nil
}

// lockRowOf returns a lock as a row. at is when it was looked at, by the clock of this process.
func lockRowOf(l *inspect.Lock, at time.Time) lockRow {
	r := lockRow{Key: l.Key, Owner: l.Owner, Held: "not known"}
	if l.Owner != "" {
		r.Token = tokenText(l.Token) // otherwise it isn't the holder's
	}
	if !l.Since.IsZero() {
		r.Held = lasting(at, l.Since)
	}
	switch {
	case l.Left < 0:
		r.Left = "never"
	default:
		r.Left = stamped(at.Add(l.Left), span(l.Left.Round(time.Second)))
	}
	return r
}

// sheet returns the locks for a file.
func (k *locksLook) sheet() *sheet {
	s := &sheet{name: "locks", columns: []string{"key", "owner", "token", "since", "left_seconds"}}
	for _, l := range k.locks {
		row := []any{l.Key, l.Owner, nil, l.Since, nil}
		if l.Owner != "" {
			row[2] = strconv.FormatInt(l.Token, 10) // above 2^53 a number isn't exact everywhere
		}
		if l.Left >= 0 {
			row[4] = l.Left
		}
		s.add(row...)
	}
	return s
}
