package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Each help text fits a terminal of 80 columns, and says where the flags are that it leaves out.
func TestHelp(t *testing.T) {
	t.Parallel()
	sh := &shell{t: t}
	n := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		n++
		out := sh.ok(append(strings.Fields(c.CommandPath())[1:], "--help")...)
		for line := range strings.SplitSeq(out, "\n") {
			if cells(line) > 80 && !strings.Contains(line, "  signalbox ") { // examples are copied whole
				t.Errorf("%s --help: %d cells in %q", c.CommandPath(), cells(line), line)
			}
		}
		if hidden := !strings.Contains(out, "--tls-ca"); hidden != c.HasParent() || hidden && !strings.Contains(out, `"signalbox --help"`) {
			t.Errorf("%s --help: %s", c.CommandPath(), out)
		}
		if !c.HasSubCommands() && !strings.Contains(out, c.CommandPath()) {
			t.Errorf("%s --help has no usage line: %s", c.CommandPath(), out)
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit((&app{}).root())
	if n < 20 {
		t.Errorf("only %d commands were looked at", n)
	}
}
