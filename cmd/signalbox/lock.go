package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) lockCommand() *cobra.Command {
	return a.group("lock", "List the locks that are held", a.lockLs())
}

func (a *app) lockLs() *cobra.Command {
	c := a.command("ls PATTERN", "List the locks that are held, and who has them", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		t := a.table(column{name: "KEY"}, column{name: "OWNER", cut: 10}, column{name: "TOKEN", right: true, drop: 1}, column{name: "HELD", right: true, drop: 2},
			column{name: "LEFT", right: true})
		now := a.clock(ctx)
		n := 0
		for l, err := range ins.Locks(ctx, args[0]) {
			if err != nil {
				t.flushRows()
				return err
			}
			n++
			if a.json() {
				if err := a.document(lockOf(l)); err != nil {
					return err
				}
				continue
			}
			row := lockRow(l, now)
			t.row(row...)
		}
		if n == 0 {
			a.note("No lock that is held fits the pattern.")
		}
		t.flushRows()
		return nil
	})
	c.Long = `List the locks of package lock that are held, on one Redis or in a Cluster: not
those of Redlock, and not the leases of jobs. It covers Redis only. Locks of
etcd, ZooKeeper and PostgreSQL aren't listed: the method Inspect of their
lockers (packages lock/etcdlock, lock/zklock, lock/pglock) says who has a key.

PATTERN is as in the command KEYS of Redis: * fits any text, ? one character.
Keys are as the programs name them; those of middleware.Lock begin with
signalbox:lock:. The command goes through the names of all keys of the database,
in short calls, so Redis goes on serving others meanwhile.`
	c.Example = `  signalbox lock ls 'orders:*'
  signalbox lock ls '*' -o json`
	c.ValidArgsFunction = cobra.NoFileCompletions
	return c
}

// lockJSON is a lock for programs. docs/cli/json.md has its fields.
type lockJSON struct {
	Key         string   `json:"key"`
	Owner       string   `json:"owner"`
	Token       int64    `json:"token"`
	Since       *string  `json:"since"`
	LeftSeconds *float64 `json:"left_seconds"`
}

func lockOf(l inspect.Lock) lockJSON {
	out := lockJSON{Key: l.Key, Owner: l.Owner, Token: l.Token, Since: timestamp(l.Since)}
	if l.Left >= 0 {
		left := seconds(l.Left)
		out.LeftSeconds = &left
	}
	return out
}

func lockRow(l inspect.Lock, now time.Time) []string {
	held, left := "", "for ever"
	if !l.Since.IsZero() {
		held = span(max(0, now.Sub(l.Since)))
	}
	if l.Left >= 0 {
		left = span(l.Left)
	}
	return []string{l.Key, l.Owner, strconv.FormatInt(l.Token, 10), held, left}
}
