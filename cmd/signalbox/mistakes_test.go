package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// goNames are names of fields and constants of Go, as no error for somebody at a terminal has them.
var goNames = regexp.MustCompile(`\b[A-Z][a-z]+\.?[A-Z]\w*|\bsignalbox\.|\b(Retry|Edit|Serial|Timeout|Config)\b`)

// The error of a wrong argument names the flag that it came from, and what is allowed there. It names no field of Go.
func TestMistakesNameFlags(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "a")
	long := strings.Repeat("x", 501)
	for line, want := range map[string]string{
		"job mv mail a --to mail": `--to: the jobs are in queue "mail" already`, "job mv mail a --to {x}": `--to: queue "{x}": byte 0`, "job mv mail --state ready --to {x} --yes": "--to: ",
		"job cancel mail a --why " + long: "--why: 501 bytes", "job cancel mail --state ready --yes --why " + long: "--why: 501 bytes",
		"job reschedule mail a --at 0001-01-01T00:00:00Z": "--at", "job reschedule mail a --at 9999-01-01T00:00:00Z": "--at: it is after 2255", "job reschedule mail a --after 36500d36500d": "--after",
		"job edit mail a --job-timeout 0s": "--job-timeout", "job edit mail a --max-attempts -1": "--max-attempts",
		"job ls mail --older-than 2h --newer-than 1h": "--older-than 2h is more than --newer-than 1h", "job rm mail --state dead --older-than 2h --newer-than 1h --yes": "--newer-than",
		"queue set mail --slots -1": "--slots: -1", "queue set mail --keep-jobs -1": "--keep-jobs: -1", "queue set mail --keep-bytes 9000000000000000000": "--keep-bytes: ", "queue set mail --keep-age 36500d": "--keep-age: ",
		"queue set mail --keep-completed-jobs -1": "--keep-completed-jobs: -1", "queue set mail --keep-completed-age 36500d": "--keep-completed-age: ",
		"queue set mail --copy-dead mail": "--copy-dead: ", "queue set mail --copy-dead {x}": "--copy-dead: ",
		"queue limit mail --running 99999999": "--running: 99999999; 1 to 1000000 is allowed, or none", "queue limit mail --rate 5/36500d": "--rate: ", "queue limit mail --rate 99999999/1s": "--rate: 99999999",
		"queue limit mail --rate 5/1s --burst -3": "--burst: -3", "queue limit mail --length -2": "--length: -2", "queue limit mail --groups --running 99999999": "--running: ",
		"queue hold mail --for 48h": "--for: 48h0m0s", "queue rm --matching [": `pattern "["`, "queue rm --matching m* --unused-for 1000d": "--unused-for: ",
		"enqueue a.b {} -q mail --max-attempts -3": "--max-attempts: -3", "enqueue a.b {} -q mail --retain 36500d": "--retain: ", "enqueue a.b {} -q mail --group a --serial b": "--group and --serial",
		"enqueue a.b {} -q mail --yield-on-retry": "--yield-on-retry goes with --serial", "enqueue a.b {} -q mail --after 1h --at 2099-01-01T00:00:00Z": "--at and --after",
		"enqueue a.b {} -q mail --expire-after 36500d": "--expire-after: ",
		"completion tcsh": `"tcsh"; it has bash, zsh, fish, powershell`, "completion bash tcsh": "tcsh", "help nothing": `"nothing"; it has queue, job,`, "help queue nothing": `"nothing"; it has ls,`,
	} {
		sh.fails(exitUsage, []string{want}, strings.Fields(line)...)
		if _, errs, _ := sh.run(strings.Fields(line)...); goNames.MatchString(errs) {
			t.Errorf("signalbox %.100s: %s has names of Go: %q", line, errs, goNames.FindAllString(errs, -1))
		}
	}
	for _, line := range []string{"completion", "completion zsh", "help", "help queue", "help queue ls"} {
		if out := sh.ok(strings.Fields(line)...); len(out) < 100 {
			t.Errorf("%s: %s", line, out)
		}
	}
}
