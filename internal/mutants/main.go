// Command mutants seeds the bugs of testdata/mutants, one at a time, for testdata/mutants/run.sh.
//
// usage, in a copy of the tree:
//
//	mutants seed FOLDER FILE                 seeds a bug, and keeps what it changes in FOLDER
//	mutants remove FOLDER                    puts back what FOLDER has
//	mutants choose COMMIT SHARE HEAD FILE... prints which bugs to try, see [choose]
//	mutants moved FILE...                    brings the paths of bugs up to date whose code has moved to another file
//
// A bug is a file of three kinds of lines:
//
//	# test: ./package -run 'TestName$'
//	# why: what goes wrong with this bug in
//	@ path/of/a/file.go
//	 a line that is there, and stays
//	-a line that is there
//	+a line that replaces it
//
// The test runs the code. One that compares its text with another, such as that of docs/wire.md, fails with any change, and is refused.
//
// There may be more lines, and more places. The lines that are there must stand one after another, and nowhere else in the file. They have no line
// numbers, and the white space at their margins counts for nothing: so code can move within its file, to another file, and into a deeper block.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "seed":
		return seed(args[1], args[2])
	case len(args) == 2 && args[0] == "remove":
		return remove(args[1])
	case len(args) > 4 && args[0] == "choose":
		share, err := strconv.Atoi(args[2])
		if err != nil || share < 1 {
			return fmt.Errorf("share %q: want a number from 1", args[2])
		}
		chosen, err := choose(args[1], share, args[3], args[4:])
		for _, file := range chosen {
			fmt.Println(file)
		}
		return err
	case len(args) > 1 && args[0] == "moved":
		return moved(args[1:])
	}
	return errors.New("usage: mutants seed FOLDER FILE | remove FOLDER | choose COMMIT SHARE HEAD FILE [FILE ...] | moved FILE [FILE ...]")
}

// seed seeds the bug of a file in the tree where it is called.
func seed(folder, file string) error {
	b, err := load(file)
	if err != nil {
		return err
	}
	files, err := b.seeded(".")
	if err != nil {
		return err
	}
	for path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		kept := filepath.Join(folder, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o700), os.WriteFile(kept, text, 0o600)); err != nil {
			return err
		}
	}
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func load(file string) (*bug, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parse(file, text)
}

// remove puts back what seed has kept, and empties the folder.
func remove(folder string) error {
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return os.WriteFile(rel, text, 0o600)
	})
	if err != nil {
		return err
	}
	return os.RemoveAll(folder)
}

// moved rewrites the paths in bugs whose code has moved.
func moved(files []string) error {
	for _, file := range files {
		b, err := load(file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var lines []string
		place := 0
		for l := range strings.Lines(string(text)) {
			if strings.HasPrefix(l, "@ ") {
				path, _, err := b.places[place].where(".")
				if err != nil {
					return fmt.Errorf("%s: %w", b.name, err)
				}
				l = "@ " + path + "\n"
				place++
			}
			lines = append(lines, l)
		}
		if now := strings.Join(lines, ""); now != string(text) {
			if err := os.WriteFile(file, []byte(now), 0o600); err != nil {
				return err
			}
			fmt.Println(b.name)
		}
	}
	return nil
}
