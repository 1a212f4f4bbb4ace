package signalbox_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// What a reader of the guide does, in its order: a file to write, commands to run, lines that are to be seen, or Ctrl-C.
var (
	guideStep  = regexp.MustCompile("(?ms)^```(go|sh|text)\n(.*?)^```$|Ctrl-C")
	fromThenOn = regexp.MustCompile("(?s)<!-- from then on\n.*?-->\n") // a release shows it
	guideFile  = regexp.MustCompile(`\A// (\w+\.go)\n`)
)

// TestGuide follows docs/guide literally, in an empty folder beside a clone: it writes the files, runs the commands, looks for the lines of the blocks
// of text in what they print, and stops what runs where the guide says so. The guide of a released version needs no clone, and has none here.
func TestGuide(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("docs/guide/[0-9]-*.md")
	if err != nil || len(pages) != 5 {
		t.Fatalf("the pages of the guide: %v, %v", pages, err)
	}
	work := t.TempDir()
	r := &reader{t: t, dir: filepath.Join(work, "shop"), redis: redistest.New(t).Addr(), http: redistest.Address(t)}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(readText(t, pages[0]), "git clone ") {
		if err := os.Symlink(root, filepath.Join(work, "signalbox")); err != nil {
			t.Fatal(err)
		}
	}
	for _, page := range pages {
		r.at = page
		steps := 0
		for _, step := range guideStep.FindAllStringSubmatch(fromThenOn.ReplaceAllString(readText(t, page), ""), -1) {
			steps++
			switch step[1] {
			case "go":
				r.write(step[2])
			case "sh":
				r.run(step[2])
			case "text":
				r.see(strings.Split(strings.TrimSpace(r.here(step[2])), "\n"))
			default:
				r.interrupt()
			}
		}
		if r.running != nil {
			t.Fatalf("%s doesn't say how to stop what it started", page)
		}
		if steps < 3 {
			t.Errorf("%s has %d steps; are the others not seen?", page, steps)
		}
	}
}

// TestGuideIsShort: no page of the guide has more than 1,500 words, and a service runs before the 3,000th.
func TestGuideIsShort(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/guide/*.md")
	if err != nil || len(pages) < 6 {
		t.Fatalf("the pages of the guide: %v, %v", pages, err)
	}
	before := 0
	for _, page := range pages {
		text := readText(t, page)
		if n := len(strings.Fields(text)); n > 1500 {
			t.Errorf("%s has %d words", page, n)
		}
		if strings.Contains(page, "5-") {
			text, _, _ = strings.Cut(text, "\n## Look\n")
		}
		before += len(strings.Fields(text))
	}
	if before > 3000 {
		t.Errorf("a service runs after %d words", before)
	}
}

// TestGlossary: the glossary is sorted, has each word once, and has every word that the guide defines.
func TestGlossary(t *testing.T) {
	t.Parallel()
	var words []string
	last := ""
	for _, row := range tableOf(t, readText(t, "docs/glossary.md"), "| word | means |") {
		if strings.ToLower(row[0]) <= last {
			t.Errorf("%q stands behind %q", row[0], last)
		}
		last = strings.ToLower(row[0])
		words = append(words, strings.Split(last, ", ")...)
	}
	pages, err := filepath.Glob("docs/guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	defined := 0
	for _, page := range pages {
		for _, m := range regexp.MustCompile(`\*\*([a-z ]+)\*\*`).FindAllStringSubmatch(readText(t, page), -1) {
			if defined++; !slices.Contains(words, m[1]) {
				t.Errorf("%s defines %q, which isn't in docs/glossary.md", page, m[1])
			}
		}
	}
	if defined < 15 {
		t.Errorf("the guide defines %d words; are the others not seen?", defined)
	}
}

// A reader of the guide has a folder and two terminals: one for what runs until Ctrl-C, and one for everything else.
type reader struct {
	t           *testing.T
	at          string // the page
	dir         string
	redis, http string // addresses, in place of those on the page

	said    chan string // lines of the last command; closed at its end
	running *exec.Cmd   // what runs until Ctrl-C
}

// here replaces the addresses of the guide by free ones.
func (r *reader) here(text string) string {
	return strings.NewReplacer("localhost:6379", r.redis, "localhost:8080", r.http).Replace(text)
}

func (r *reader) write(text string) {
	r.t.Helper()
	name := guideFile.FindStringSubmatch(text)
	if name == nil {
		r.t.Fatalf("%s: a block of Go code must begin with the name of its file:\n%s", r.at, text)
	}
	if err := os.WriteFile(filepath.Join(r.dir, name[1]), []byte(r.here(text)), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// run runs a block of commands to its end, but if its last command is "go run", that runs on.
func (r *reader) run(block string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Minute)
	r.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "bash", "-euc", r.here(block))
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+r.redis, "GOWORK=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -trimpath")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a terminal does, for Ctrl-C
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	read, write, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	write.Close()
	said := make(chan string, 1000)
	go func() {
		defer read.Close()
		defer close(said)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			select {
			case said <- lines.Text():
			default: // nobody looks for the thousandth line
			}
		}
	}()
	r.said = said
	if regexp.MustCompile(`(?m)^go run .*\n\z`).MatchString(block) {
		if r.running != nil {
			r.t.Fatalf("%s: %s while another one runs", r.at, block)
		}
		r.running = cmd
		return
	}
	if err := cmd.Wait(); err != nil {
		r.t.Fatalf("%s: %v:\n%s\n%s", r.at, err, block, r.rest())
	}
}

// see waits until the last commands have printed lines with these texts, in any order: jobs run beside each other.
func (r *reader) see(texts []string) {
	r.t.Helper()
	var seen []string
	timeout := time.After(2 * time.Minute)
	for len(texts) > 0 {
		select {
		case line, more := <-r.said:
			if !more {
				r.t.Fatalf("%s: it should print %q, and prints:\n%s", r.at, texts, strings.Join(seen, "\n"))
			}
			seen = append(seen, line)
			if i := slices.IndexFunc(texts, func(text string) bool { return strings.Contains(line, text) }); i >= 0 {
				texts = slices.Delete(texts, i, i+1)
			}
		case <-timeout:
			r.t.Fatalf("%s: it should print %q, and has printed in two minutes:\n%s", r.at, texts, strings.Join(seen, "\n"))
		}
	}
}

// interrupt presses Ctrl-C. The program that runs must end, and succeed.
func (r *reader) interrupt() {
	r.t.Helper()
	if r.running == nil {
		r.t.Fatalf("%s says Ctrl-C, and nothing runs", r.at)
	}
	if err := syscall.Kill(-r.running.Process.Pid, syscall.SIGINT); err != nil {
		r.t.Fatal(err)
	}
	// go run itself may exit with 1 after a SIGINT. If the program failed, it prints with which status.
	err, rest := r.running.Wait(), r.rest()
	if strings.Contains(rest, "exit status") || r.running.ProcessState.ExitCode() > 1 {
		r.t.Errorf("%s: after Ctrl-C: %v\n%s", r.at, err, rest)
	}
	r.running = nil
}

// rest returns what the last commands have printed that see hasn't seen, when they have ended.
func (r *reader) rest() string {
	var lines []string
	for line := range r.said {
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
