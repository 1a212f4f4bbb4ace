package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// page returns docs/cli.md and the pages of the folder docs/cli, in one text.
func page(t *testing.T) string {
	t.Helper()
	docs := filepath.Join("..", "..", "docs")
	more, err := filepath.Glob(filepath.Join(docs, "cli", "*.md"))
	if err != nil || len(more) < 3 {
		t.Fatalf("the pages of docs/cli: %v, %v", more, err)
	}
	var all strings.Builder
	for _, file := range append([]string{filepath.Join(docs, "cli.md")}, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// TestDocsStory: each command of the stories in docs/cli prints what the page shows.
func TestDocsStory(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", `{"order":17,"to":"ann@@example.org"}`, "-q", "mail", "--id", "order-17", "--max-attempts", "1")
	sh.works(srv)
	sh.settled(1, 0)
	if err := store.New(srv.Client(), sh.namespace, "mail").Outboxes().Set(t.Context(), "5f0c6f0c2b8f4d1e9a7b3c5d7e9f1a2b", `{"at":90000000,"backlog":7,"oldest":15000000,"dead":2}`, time.Hour); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(page(t), -1) {
		for _, step := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			seen++
			line, want, _ := strings.Cut(step, "\n")
			if strings.HasPrefix(line, "signalbox job ls mail") && strings.Contains(want, "no such job") {
				redistest.Eventually(t, func() bool { return sh.state("order-17") == "" }, "the job has run again")
			}
			out, errs, code := sh.run(words(line)[1:]...)
			got := tidy(strings.ReplaceAll(out+errs, sh.namespace+":", ""))
			if want, cut := strings.CutSuffix(strings.TrimSpace(want), "\n..."); cut && strings.HasPrefix(got, tidy(want)) {
				continue
			}
			if code != 0 || got != tidy(want) {
				t.Errorf("%s: status %d, it prints\n%s\nand docs/cli has\n%s", line, code, got, tidy(want))
			}
		}
	}
	if seen < 7 {
		t.Errorf("docs/cli has %d commands in its stories; are the others not seen?", seen)
	}
}

// tidy hides what differs from run to run.
func tidy(s string) string {
	s = regexp.MustCompile(`\{[0-9a-f]{16}\}`).ReplaceAllString(ages(s+"\n"), "{INCARNATION}")
	return strings.TrimSpace(regexp.MustCompile(` +`).ReplaceAllString(s, " "))
}

// words splits a command line as a shell does, as far as the page needs it.
func words(line string) []string {
	var list []string
	for _, w := range regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`).FindAllString(line, -1) {
		list = append(list, strings.Trim(w, `'"`))
	}
	return list
}

// TestDocsCommands: docs/cli.md and docs/cli have every command and every flag, and no others.
func TestDocsCommands(t *testing.T) {
	t.Parallel()
	text := page(t)
	root := (&app{}).root()
	flags := map[string]bool{"--help": true, "--version": true}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, f := range regexp.MustCompile(`(?m)^ .*?(--[a-z][a-z-]*)`).FindAllStringSubmatch(c.Flags().FlagUsages()+c.PersistentFlags().FlagUsages(), -1) {
			flags[f[1]] = true
			if !strings.Contains(text, f[1]) {
				t.Errorf("docs/cli.md doesn't have %s of %s", f[1], c.CommandPath())
			}
		}
		if !c.HasSubCommands() && !strings.Contains(text, "`"+strings.TrimPrefix(c.CommandPath(), "signalbox ")) {
			t.Errorf("docs/cli.md doesn't have %q", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	for _, f := range regexp.MustCompile(`--[a-z][a-z-]*`).FindAllString(text, -1) {
		if !flags[f] {
			t.Errorf("docs/cli.md has %s, which is no flag", f)
		}
	}
}

// TestExamples: each example of a help text is a command line with flags that are there.
func TestExamples(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.env["REDIS_URL"] = "redis://" + redistest.Address(t) // nobody is there
	sh.width = 80
	n := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for line := range strings.SplitSeq(c.Example, "\n") {
			_, line, _ = strings.Cut(line, "signalbox ")
			line = regexp.MustCompile(` [<>|].*`).ReplaceAllString(line, "")
			if line == "" {
				continue
			}
			n++
			sh.in, sh.terminal = "y\n", true
			if strings.Contains(line, " - ") {
				sh.in = "{}"
			}
			if _, errs, code := sh.run(words(line)...); code != exitAway && !strings.Contains(errs, "report.json") {
				t.Errorf("signalbox %s: status %d, %s", line, code, errs)
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit((&app{}).root())
	if n < 15 {
		t.Errorf("%d examples; are the others not seen?", n)
	}
}
