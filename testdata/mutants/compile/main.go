// Command compile runs the Go compiler for "go test -toolexec", and repeats no work.
//
// A seeded bug changes one package, mostly within one function. Go then compiles every package that imports
// it once more, as it compares whole archives. The compiler reads only the export data of an import. So this
// command keeps each archive under a hash of all that the compiler reads: flags, source files, embedded
// files and the export data of imports. If the hash is known, the archive is copied. The linker
// compares the export data of all archives, and refuses a mixture that doesn't fit.
//
// COMPILED names the folder of the archives. All other tools, and packages outside this module, are just run.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/signalbox-go/signalbox"

func main() {
	tool, args := os.Args[1], os.Args[2:]
	if err := run(tool, args); err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "mutants/compile:", err)
		os.Exit(1)
	}
}

func run(tool string, args []string) error {
	c, ok := parse(args)
	if filepath.Base(tool) != "compile" || !ok {
		return execute(tool, args)
	}
	key, err := c.key(tool)
	if err != nil {
		return err
	}
	kept := filepath.Join(os.Getenv("COMPILED"), key)
	if archive, err := os.ReadFile(kept); err == nil {
		return os.WriteFile(c.output, swap(archive, placeholder(c.buildID), c.buildID), 0o666)
	}
	if err := execute(tool, args); err != nil {
		return err
	}
	archive, err := os.ReadFile(c.output)
	if err != nil {
		return err
	}
	// Several jobs may write the same archive. Each writes a file of its own, and the last name stays.
	own := fmt.Sprintf("%s.%d", kept, os.Getpid())
	if err := os.WriteFile(own, swap(archive, c.buildID, placeholder(c.buildID)), 0o666); err != nil {
		return err
	}
	return os.Rename(own, kept)
}

func execute(tool string, args []string) error {
	cmd := exec.Command(tool, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// placeholder is as long as the build ID, in whose place it stands in a kept archive.
func placeholder(buildID string) string { return strings.Repeat("#", len(buildID)) }

func swap(archive []byte, from, to string) []byte {
	return bytes.ReplaceAll(archive, []byte(from), []byte(to))
}

// A call is a call of the compiler.
type call struct {
	args                               []string
	output, buildID, imports, embedded string
}

// parse returns the call, and whether this command knows what it reads.
func parse(args []string) (call, bool) {
	c := call{args: args}
	for i, arg := range args[:max(len(args)-1, 0)] {
		switch value := args[i+1]; arg {
		case "-o":
			c.output = value
		case "-buildid":
			c.buildID = value
		case "-importcfg":
			c.imports = value
		case "-embedcfg":
			c.embedded = value
		case "-p":
			if value != "main" && value != module && !strings.HasPrefix(value, module+"/") {
				return c, false
			}
		case "-asmhdr", "-symabis", "-pgoprofile", "-coveragecfg":
			return c, false
		}
	}
	return c, c.output != "" && c.buildID != "" && c.imports != "" && os.Getenv("COMPILED") != ""
}

// key returns the hash of the compiler and of everything that it reads.
func (c call) key(tool string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", tool)
	// Neither Go's working folder nor the copy of the tree is in the archive: -trimpath replaces both.
	names := strings.NewReplacer(filepath.Dir(c.output), "WORK", dir, "TREE", c.buildID, "ID")
	for _, arg := range c.args {
		if strings.HasPrefix(arg, "-c=") {
			continue // how many threads compile, which depends on what else is built
		}
		fmt.Fprintf(h, "%q\n", names.Replace(arg))
		if strings.HasSuffix(arg, ".go") {
			if err := addFile(h, arg); err != nil {
				return "", err
			}
		}
	}
	if err := errors.Join(c.addImports(h), c.addEmbedded(h)); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

func addFile(h hash.Hash, name string) error {
	text, err := os.ReadFile(name)
	fmt.Fprintf(h, "%d\n%s\n", len(text), text)
	return err
}

// addImports adds the export data of each import.
func (c call) addImports(h io.Writer) error {
	config, err := os.ReadFile(c.imports)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(config)) {
		name, file, found := strings.Cut(strings.TrimSpace(line), "=")
		fmt.Fprintf(h, "%q\n", name)
		if !found || !strings.HasPrefix(name, "packagefile "+module) {
			fmt.Fprintf(h, "%q\n", file) // not ours: a file of Go's cache, which is named by its content
			continue
		}
		data, err := exportData(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%d\n%s\n", len(data), data)
	}
	return nil
}

// exportData returns the export data in an archive. It stands in the first member, after a header with
// the build ID.
func exportData(file string) ([]byte, error) {
	archive, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	const begin, end = "\n$$B\n", "\n$$\n"
	from := bytes.Index(archive, []byte(begin))
	size := 0
	if len(archive) < 68 || from < 0 {
		return nil, fmt.Errorf("%s is no archive with export data", file)
	}
	// "!<arch>\n", then the member's header of 60 bytes, with its size in bytes 48 to 58.
	if _, err := fmt.Sscan(string(archive[8+48:8+58]), &size); err != nil || 68+size > len(archive) || from > 68+size {
		return nil, fmt.Errorf("%s has no export data in its first member: %w", file, err)
	}
	return bytes.TrimSuffix(archive[from+len(begin):68+size], []byte(end)), nil
}

// addEmbedded adds the files that the package embeds.
func (c call) addEmbedded(h hash.Hash) error {
	if c.embedded == "" {
		return nil
	}
	text, err := os.ReadFile(c.embedded)
	if err != nil {
		return err
	}
	var config struct {
		Patterns map[string][]string
		Files    map[string]string
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	patterns, err := json.Marshal(config.Patterns) // in the order of its keys
	fmt.Fprintf(h, "%s\n", patterns)
	var names []string
	for name := range config.Files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(h, "%q\n", name)
		err = errors.Join(err, addFile(h, config.Files[name]))
	}
	return err
}
