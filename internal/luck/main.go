// Command luck runs go test, and runs a test that failed once more, alone.
//
// usage: luck FOLDER STEP go test [flags and packages]
//
// A test that fails in one of a hundred runs on a loaded machine is a defect, and shouldn't cost a whole run of CI. Each test that failed is run again up to
// twice, by itself, with the same flags. If it passes then, it was luck: its first output is kept in FOLDER, and the exit status is 0. Printing what FOLDER has
// is for the caller.
//
// Only a test that waited in vain, or that took too long, can have had luck: see [verdict]. Every other assertion may say that a promise is broken, and isn't tried
// again. The run also fails if a test has luck in two steps, or if three tests have it.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	tries = 2 // of a test that failed, beside the first
	most  = 2 // tests may have luck, in all steps together
)

func main() {
	if len(os.Args) < 5 || os.Args[3] != "go" || os.Args[4] != "test" {
		fmt.Fprintln(os.Stderr, "usage: luck FOLDER STEP go test [flags and packages]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[5:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "luck:", err)
		os.Exit(1)
	}
}

// run is go test with args, as the command does it.
func run(folder, step string, args []string, out io.Writer) error {
	failed, other, err := goTest(args, out)
	if err == nil {
		return nil
	}
	if other != "" {
		return errors.New(other)
	}
	if len(failed) == 0 {
		return err
	}
	if len(failed) > most {
		return fmt.Errorf("%d tests failed; of up to %d it is seen whether they pass alone", len(failed), most)
	}
	for _, f := range failed {
		if why := verdict(f.output); why != "" {
			return fmt.Errorf("%s isn't run again: %s", f.name(), why)
		}
		if err := again(f, args, out); err != nil {
			return err
		}
		if err := note(folder, step, f); err != nil {
			return err
		}
	}
	return nil
}

// A failure is a test of which go test says that it failed.
type failure struct{ pkg, test, output string }

func (f failure) name() string { return f.pkg + "." + f.test }

// again runs a test alone until it passes.
func again(f failure, args []string, out io.Writer) error {
	for try := 1; try <= tries; try++ {
		fmt.Fprintf(out, "luck: %s failed; run %d of %d alone\n", f.name(), try, tries)
		once, other, err := goTest(append(flags(args), "-count=1", "-run", "^"+f.test+"$", f.pkg), out)
		if err == nil {
			return nil
		}
		if other != "" {
			return errors.New(other)
		}
		for _, f := range once {
			if why := verdict(f.output); why != "" {
				return fmt.Errorf("%s, alone: %s", f.name(), why)
			}
		}
	}
	return fmt.Errorf("%s also fails alone", f.name())
}

// flags leaves out the packages: what has a slash, or is a dot.
func flags(args []string) []string {
	var kept []string
	for _, a := range args {
		if strings.HasPrefix(a, "-") || a != "." && !strings.HasPrefix(a, "./") {
			kept = append(kept, a)
		}
	}
	return kept
}

var (
	header  = regexp.MustCompile(`^--- FAIL: (\S+) \(`)
	verdicT = regexp.MustCompile(`^(?:FAIL|ok  |\?   )\t(\S+)`)
)

// goTest runs go test and passes its output on. failed are the tests that failed; other says, if it isn't empty, what else went wrong.
func goTest(args []string, out io.Writer) (failed []failure, other string, err error) {
	cmd := exec.Command("go", append([]string{"test"}, args...)...)
	pipe, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write // one writer: exec then copies both by one goroutine
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	waited := make(chan error, 1)
	go func() {
		waited <- cmd.Wait()
		write.Close()
	}()
	failed, other = read(io.TeeReader(pipe, out))
	return failed, other, <-waited
}

// read reads the output of go test. Without -v that of a package ends with a line of its verdict, and has what was printed, and the output of tests that failed.
func read(r io.Reader) (failed []failure, other string) {
	lines := bufio.NewReader(r)
	var block bytes.Buffer // of the package
	var tests []string
	for {
		line, err := lines.ReadString('\n')
		block.WriteString(line)
		if m := header.FindStringSubmatch(line); m != nil {
			tests = append(tests, m[1])
		}
		if m := verdicT.FindStringSubmatch(line); m != nil {
			if strings.HasPrefix(line, "FAIL") {
				if len(tests) == 0 {
					other = cmp.Or(other, m[1]+" fails without a test that does")
				}
				for _, t := range tests {
					failed = append(failed, failure{m[1], t, block.String()})
				}
			}
			block.Reset()
			tests = nil
		}
		if err != nil {
			return failed, other
		}
	}
}

var (
	// What is never luck, wherever it stands.
	crash = regexp.MustCompile(`(?m)DATA RACE|^panic: |^fatal error: |test timed out|race detected|goleak|goroutines? (is|are) left|^signal: |^exit status [^1]`)
	// An assertion, but for what is told of the server and its log, which is no assertion.
	assertion = regexp.MustCompile(`^( +)\w+\.go:\d+: (log of (?:the (?:server at|workers:)|child \d)|redistest: on the embedded Redis)?`)
	// The words by which our tests say that something took too long.
	slow = regexp.MustCompile(`(?i)still not so after|not within|\btook\b|\bin time\b|\btoo (late|early|slow)\b|deadline exceeded|\btimed?[- ]?out\b|shows nothing`)
	// Words by which they say that a promise was broken, also where something took too long.
	promise = regexp.MustCompile(`(?i)\b(lost|loses?|twice|doubled?|duplicates?|two holders|second holder|both hold|holders|overlap\w*|times|doctor|check|findings?|violat\w*|leak\w*|more than one|again|missed|tokens?|got|want)\b`)
)

// verdict says why the failure that go test prints thus isn't luck, or nothing. It is luck only if each assertion says that something took too long.
func verdict(output string) string {
	if m := crash.FindString(output); m != "" {
		return fmt.Sprintf("its package's output has %q", strings.TrimSpace(m))
	}
	asserted := false
	margin := "" // of the lines that go on with an assertion; a log has the margin of the assertion itself
	for line := range strings.Lines(output) {
		switch m := assertion.FindStringSubmatch(line); {
		case m != nil && m[2] == "":
			asserted, margin = true, m[1]+" "
			if !slow.MatchString(line) {
				return fmt.Sprintf("an assertion doesn't say that something took too long: %q", strings.TrimSpace(line))
			}
		case margin == "" || !strings.HasPrefix(line, margin):
			margin = ""
			continue
		}
		if m := promise.FindString(line); m != "" {
			return fmt.Sprintf("an assertion has the word %q, so a promise may be broken", m)
		}
	}
	if !asserted {
		return "no assertion failed"
	}
	return ""
}

// note keeps the output of a test that had luck, in a file of its name. Two steps may run at the same time.
func note(folder, step string, f failure) error {
	text := fmt.Appendf(nil, "luck: %s, in \"%s\"; it failed with\n%s", f.name(), step, f.output)
	file, err := os.OpenFile(filepath.Join(folder, strings.ReplaceAll(f.name(), "/", "_")), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s had luck in an earlier step, too", f.name())
	}
	if err != nil {
		return err
	}
	if _, err := file.Write(text); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := file.Close(); err != nil {
		return err
	}
	all, err := os.ReadDir(folder)
	if err == nil && len(all) > most {
		err = fmt.Errorf("%d tests had luck in this run; no more than %d may", len(all), most)
	}
	return err
}
