package scenarios

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// timeLimit bounds one play of one case.
const timeLimit = 40 * time.Second

// maxPlays bounds how often a case is played if the machine is too slow.
const maxPlays = 3

// errMissed means that a step didn't happen within a TTL, so nothing was proved.
var errMissed = errors.New("the machine was too slow for the arrangement")

// A scenario is one case.
type scenario struct {
	name string
	play func(*scene) error
}

var scenarios = []scenario{
	{"clocks that jump", clocksJump},
	{"a node that forgets", nodeForgets},
	{"a client that is paused", clientPaused},
	{"packets that are late", packetsLate},
}

// Run plays the four cases. For each it writes what happened and a result line to out. The
// error describes the cases that failed. It wraps [ErrMissing] if none could be played. It
// takes about half a minute. No process is left when Run returns, or when this process ends.
func Run(ctx context.Context, out io.Writer) (passed, total int, err error) {
	total = len(scenarios)
	dir, err := os.MkdirTemp("", "signalbox-scenarios-")
	if err != nil {
		return 0, total, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := equip(ctx, dir)
	if err != nil {
		return 0, total, err
	}
	for i, c := range scenarios {
		if cause := c.run(ctx, s, i+1, out); cause != nil {
			err = errors.Join(err, fmt.Errorf("scenario %d, %s: %w", i+1, c.name, cause))
		} else {
			passed++
		}
	}
	return passed, total, err
}

// A stage is shared by all plays.
type stage struct {
	dir         string
	program     string // path of this program
	redisServer string
	shim        string // the library that moves clocks
}

func equip(ctx context.Context, dir string) (*stage, error) {
	s := &stage{dir: dir, shim: filepath.Join(dir, "clock.so")}
	var err error
	if s.redisServer, err = exec.LookPath("redis-server"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	if s.program, err = os.Executable(); err != nil {
		return nil, err
	}
	return s, buildShim(ctx, s.shim)
}

// run plays one case until it has a result.
func (c scenario) run(ctx context.Context, s *stage, number int, out io.Writer) error {
	for play := 1; ; play++ {
		start := time.Now()
		sc, err := c.once(ctx, s)
		if errors.Is(err, errMissed) && play < maxPlays && ctx.Err() == nil {
			fmt.Fprintf(out, "%d. %s: played again: %v\n\n", number, c.name, err)
			continue
		}
		result := "ok"
		if err != nil {
			result = "FAILED: " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		_, failed := fmt.Fprintf(out, "%d. %s\n%s\nscenario %d: %s (%s in %.1f s)\n\n",
			number, c.name, wrapped(sc.story), number, result, sc.figures, time.Since(start).Seconds())
		return errors.Join(err, failed)
	}
}

func (c scenario) once(ctx context.Context, s *stage) (_ *scene, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("not done after %v", timeLimit))
	defer cancel()
	sc := &scene{stage: s, ctx: ctx}
	defer sc.end()
	if err = c.play(sc); err == nil {
		err = sc.figures.verdict()
	}
	if wrong := sc.grants.check(); wrong != nil {
		return sc, wrong // the failure counts in any case: another play must not hide it
	}
	return sc, err
}
