package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

// An app is one call of the command: its streams, its flags, and its connection to Redis.
type app struct {
	in          io.Reader
	out, err    io.Writer
	screen      io.Writer // what out writes to, at once: for a program that draws on it
	flush       func()    // writes what out holds back
	env         func(name string) string
	width       int  // of the terminal that out is, in cells. 0: it is none
	inTerminal  bool // in is a terminal: questions can be answered
	errTerminal bool // err is a terminal: questions and progress can be seen

	connection connection
	output     string                // "table" or "json"
	rdb        redis.UniversalClient // once it has reached Redis
	hook       *hook
	stopped    context.Context
	running    *cobra.Command // once its flags and arguments were right
	began      bool           // the flags and arguments were right; what fails from here on is no mistake of usage
	closers    []func() error
	editing    atomic.Bool // an editor has the terminal
}

// run runs the command that args name and returns the status to exit with. It returns soon after ctx has ended, also while Redis
// doesn't answer.
func (a *app) run(ctx context.Context, args []string) int {
	a.stopped = ctx
	out := bufio.NewWriter(a.out)
	a.out, a.screen, a.flush = out, a.out, func() { _ = out.Flush() } // the error comes again at the end
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	a.refuseUnknown(root)
	err := root.ExecuteContext(ctx)
	for _, c := range a.closers {
		_ = c() // nothing is lost: each command has had its replies
	}
	if flushErr := out.Flush(); flushErr != nil && err == nil {
		err = fmt.Errorf("write the output: %w", flushErr)
	}
	if err == nil {
		return exitOK
	}
	code, text := a.explain(err)
	fmt.Fprintf(a.err, "signalbox: %s\n", oneLine(text))
	var kept *keptError
	if errors.As(err, &kept) && !a.json() { // the document has the reasons
		fmt.Fprint(a.err, kept.list())
	}
	return code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "signalbox",
		Short: "Look at the queues, jobs and workers of Signalbox, and act on them",
		Long: `signalbox looks at the queues, jobs and workers of Signalbox in Redis, and acts
on them.

It talks to the Redis of --redis or REDIS_URL, in the namespace of --namespace
or SIGNALBOX_NAMESPACE. User and password are those of the URL, or else
REDIS_USERNAME and REDIS_PASSWORD. Tables are for people. Programs read -o json.

Exit codes: 0 done, or nothing was to do; 1 it failed; 2 a mistake in flags or
arguments; 3 no such queue, job, worker or entry; 4 not in this state; 5 Redis
doesn't answer; 6 the doctor has findings; 130 interrupted. The fields of the
JSON: ` + guide + `cli/json.md`,
		Example:       rootExample,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          a.noSubcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if a.output != "table" && a.output != "json" {
				return usage("--output %q: want table or json", a.output)
			}
			return checkEmpty(c)
		},
	}
	root.SetUsageTemplate(usageTemplate)
	root.SetVersionTemplate("signalbox {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%s; see %s --help", flagError(err), c.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVarP(&a.output, "output", "o", "table", "table for people, json for programs")
	a.connection.register(flags)
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(a.queueCommand(), a.jobCommand(), a.flowCommand(), a.workerCommand(), a.cronCommand(), a.lockCommand(), a.outboxCommand(), a.enqueueCommand(), a.exportCommand(), a.importCommand(), a.doctorCommand(), a.redisCommand(), a.topCommand(), a.webCommand())
	return root
}

// refuseUnknown has the commands that cobra adds, those for completions and for help, refuse what they don't know. By themselves they print a help text then, and end as if
// that had been asked for. It is called once the streams are set.
func (a *app) refuseUnknown(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = a.noSubcommand, func(c *cobra.Command, _ []string) error { return c.Help() }
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				if of, rest, err := root.Find(args); err == nil && of.HasAvailableSubCommands() {
					return a.noSubcommand(of, rest)
				}
				return nil
			}
		}
	}
}

// guide is where the docs are for somebody who has this program alone.
const guide = "https://github.com/signalbox-go/signalbox/blob/main/docs/"

const rootExample = `  signalbox queue ls
  signalbox job ls mail --state dead
  signalbox job show mail order-17
  signalbox job edit mail order-17 --run
  signalbox queue pause mail`

// version returns the version of this program, as far as Go has noted it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of an unknown version"
	}
	text := cmp.Or(info.Main.Version, "(devel)")
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += ", commit " + s.Value
		}
	}
	return text + ", " + info.GoVersion
}

// flagError returns what is wrong with a flag, in place of what a function of Go says about its value.
func flagError(err error) string {
	text := err.Error()
	for _, of := range []struct{ sign, want string }{
		{"strconv.ParseBool: ", "want true or false"},
		{"strconv.", "want a whole number"},
		{"time: ", "want a duration such as 90s or 12h"},
	} {
		if at := strings.LastIndex(text, ": "+of.sign); at >= 0 {
			return text[:at] + ": " + of.want
		}
	}
	return text
}

// group returns a command that has commands below it, and does nothing by itself.
func (a *app) group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: use, Short: short, Args: a.noSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	g.AddCommand(commands...)
	return g
}

// noSubcommand is the check of the arguments of a group: whatever is left there is no command.
func (a *app) noSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	did := ""
	cmd.SuggestionsMinimumDistance = 2
	if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
		did = fmt.Sprintf(" Did you mean %s?", s[0])
	}
	return usage("%s has no command %q; it has %s.%s", cmd.CommandPath(), args[0], strings.Join(names, ", "), did)
}

// command returns a command that calls do once its flags and arguments are right.
func (a *app) command(use, short string, args cobra.PositionalArgs, do func(ctx context.Context, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, list []string) error {
			if args(cmd, list) != nil {
				return usage("want %s; see %s --help", cmd.UseLine(), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, list []string) error {
			a.began, a.running = true, cmd
			return do(cmd.Context(), list)
		},
	}
}

// json reports whether the output is for programs.
func (a *app) json() bool { return a.output == "json" }

// note writes a line for people beside the output. With -o json it is left out.
func (a *app) note(format string, args ...any) {
	if !a.json() {
		a.flush() // what was said before comes before
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// interrupted reports whether a signal is to end the command. An editor's Ctrl-C goes to both processes, and is meant for the editor.
func (a *app) interrupted(s os.Signal) bool { return s != os.Interrupt || !a.editing.Load() }

// errInterrupted is the error of a command that a signal has ended.
var errInterrupted = errors.New("interrupted")
