package demo

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// choices are the values of the flags.
type choices struct {
	lock  *Lock
	nodes int
	kill  int
}

// parse parses the flags. It reports a mistake to out.
func parse(locks []Lock, args []string, out io.Writer) (choices, error) {
	var c choices
	first := locks[0].Name
	if find(locks, "single") != nil {
		first = "single"
	}
	flags := flag.NewFlagSet("items", flag.ContinueOnError)
	flags.SetOutput(out)
	name := flags.String("lock", first, "`which` lock: "+strings.Join(names(locks), ", "))
	counts := map[string]*int{} // by the flag's name
	var withNodes []string
	for _, l := range locks {
		k := l.Nodes
		if k == nil {
			continue
		}
		withNodes = append(withNodes, l.Name)
		if k.counted() && counts[k.Name] == nil {
			counts[k.Name] = flags.Int(k.Name, k.Default, fmt.Sprintf("%s: start this `number` of %s, at least %d", strings.Join(having(locks, k.Name), ", "), k.Name, k.Min))
		}
	}
	flags.IntVar(&c.kill, "kill", 0, fmt.Sprintf("%s: kill this `number` of them before the requests", strings.Join(withNodes, ", ")))
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(flags.NArg() == 0, "what is %q?", flags.Args())
	c.lock = find(locks, *name)
	check(c.lock != nil, "-lock=%s: want one of %s", *name, strings.Join(names(locks), ", "))
	if c.lock != nil {
		k := c.lock.Nodes
		flags.Visit(func(f *flag.Flag) {
			switch {
			case f.Name == "lock":
			case f.Name == "kill":
				check(k != nil, "-kill is for -lock=%s only", strings.Join(withNodes, " or "))
			default:
				check(k != nil && k.Name == f.Name, "-%s is for -lock=%s only", f.Name, strings.Join(having(locks, f.Name), " or "))
			}
			if f.Name != "lock" && k != nil && k.given() != "" {
				check(false, "-%s is for servers that this program starts; %s names others", f.Name, k.Env)
			}
		})
		if k != nil {
			c.nodes = k.Default
			if k.counted() {
				c.nodes = *counts[k.Name]
				check(c.nodes >= k.Min && c.nodes <= k.Max, "-%s=%d: want %d to %d", k.Name, c.nodes, k.Min, k.Max)
			}
			check(c.kill >= 0 && c.kill <= c.nodes, "-kill=%d: want 0 to %d", c.kill, c.nodes)
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(out, err)
		flags.Usage()
		return c, err
	}
	return c, nil
}

// counted reports whether a flag says how many there are.
func (k *NodeKind) counted() bool { return k.Max > k.Min }

// having returns the names of the locks whose nodes have a name.
func having(locks []Lock, nodes string) []string {
	var all []string
	for _, l := range locks {
		if l.Nodes != nil && l.Nodes.Name == nodes && !slices.Contains(all, l.Name) {
			all = append(all, l.Name)
		}
	}
	return all
}
