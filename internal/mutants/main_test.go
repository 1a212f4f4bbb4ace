package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each bug of the tree can be planted, and stands in the file that it names.
func TestBugs(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../testdata/mutants/*")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	tests := map[string]string{} // by package: the text of its tests
	for _, file := range files {
		switch filepath.Base(file) {
		case "run.sh", "compile", "proven":
			continue
		}
		b, err := load(file)
		if err != nil || !strings.HasSuffix(file, ".bug") {
			t.Errorf("%s: %v; want a file with the extension .bug", file, err)
			continue
		}
		seen++
		text, ok := tests[b.pkg]
		if !ok {
			text = textOfTests(t, filepath.Join("../..", b.pkg))
			tests[b.pkg] = text
		}
		if name := unknownTest(b.run, text); name != "" {
			t.Errorf("%s: %s has no test %s: has it moved to another package?", b.name, b.pkg, name)
		}
		if _, err := b.seeded("../.."); err != nil {
			t.Error(err)
			continue
		}
		for _, p := range b.places {
			if path, _, err := p.where("../.."); path != p.path || err != nil {
				t.Errorf("%s: the code of %s has moved to %s, %v: go run ./internal/mutants moved testdata/mutants/*.bug", b.name, p.path, path, err)
			}
		}
	}
	if seen == 0 {
		t.Error("no bugs")
	}
}

// textOfTests is the text of all test files of a folder.
func textOfTests(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, file := range files {
		part, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(part)
	}
	return text.String()
}

// unknownTest returns what a -run names and the tests don't have, or nothing: a test is a function, a subtest of the store a string in quotes. The names of
// other subtests may be put together, and aren't looked for.
func unknownTest(run, tests string) string {
	names := word.FindAllString(run, -1)
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "Test"):
			if !strings.Contains(tests, "\nfunc "+name+"(") {
				return name
			}
		case names[0] == "TestStore" && !strings.Contains(tests, `"`+name+`"`):
			return name
		}
	}
	return ""
}

func TestUnknownTest(t *testing.T) {
	tests := "package a\n\nfunc TestA(t *testing.T) {}\n\nfunc TestStore(t *testing.T) {\n\tt.Run(\"Claims\", func(t *testing.T) {})\n}\n"
	for run, want := range map[string]string{
		"TestA$": "", "^(TestA)$": "", "TestA$/put_together": "", "TestStore$/^(Claims)$": "",
		"TestB$": "TestB", "TestA$|TestB$": "TestB", "TestStore$/Moves$": "Moves", "Test": "Test",
	} {
		if got := unknownTest(run, tests); got != want {
			t.Errorf("-run %s: %q is unknown, want %q", run, got, want)
		}
	}
}

const header = "# test: ./a -run 'TestA$' -walk.steps=5\n# why: it is wrong\n"

// write makes a tree of files.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const code = "package a\n\nfunc a() {\n\tone()\n\ttwo()\n}\n\nfunc b() {\n\tone()\n}\n"

func TestSeed(t *testing.T) {
	for name, c := range map[string]struct {
		places string
		want   string // the file, or what the error has
		err    bool
	}{
		"a line is replaced":                  {"@ a/a.go\n-\ttwo()\n+\tthree()\n", strings.Replace(code, "two", "three", 1), false},
		"one goes":                            {"@ a/a.go\n-\ttwo()\n", strings.Replace(code, "\ttwo()\n", "", 1), false},
		"one is added":                        {"@ a/a.go\n \ttwo()\n+\tthree()\n", strings.Replace(code, "two()\n", "two()\n\tthree()\n", 1), false},
		"its margins differ":                  {"@ a/a.go\n-two() \n+\tthree()\n", strings.Replace(code, "two", "three", 1), false},
		"it needs its neighbour":              {"@ a/a.go\n func b() {\n-\tone()\n+\tno()\n", strings.TrimSuffix(code, "\tone()\n}\n") + "\tno()\n}\n", false},
		"two places":                          {"@ a/a.go\n-\ttwo()\n@ a/a.go\n-package a\n+package c\n", "package c" + strings.TrimPrefix(strings.Replace(code, "\ttwo()\n", "", 1), "package a"), false},
		"the file has moved":                  {"@ gone/a.go\n-\ttwo()\n", strings.Replace(code, "\ttwo()\n", "", 1), false},
		"it is there twice":                   {"@ a/a.go\n-\tone()\n", "there 2 times", true},
		"it is nowhere":                       {"@ a/a.go\n-\tnine()\n", "nor in any other file", true},
		"it is elsewhere, at two places":      {"@ a/c.go\n-\tone()\n", "at more than one place", true},
		"places overlap":                      {"@ a/a.go\n-\ttwo()\n@ a/a.go\n \ttwo()\n-}\n", "overlap", true},
		"nothing changes":                     {"@ a/a.go\n \ttwo()\n", "changes nothing", true},
		"no line is there":                    {"@ a/a.go\n+\ttwo()\n", "no line that is there", true},
		"a line of another form":              {"@ a/a.go\ntwo()\n", ":4: want", true},
		"a path that leaves the tree":         {"@ ../a.go\n-two()\n", ":3: want", true},
		"no place":                            {"", "want a line", true},
		"a test of another form":              {"# test: TestB\n@ a/a.go\n-\ttwo()\n", ":3: want", true},
		"an empty line that isn't of a place": {"\n@ a/a.go\n-\ttwo()\n", ":3: want", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(write(t, map[string]string{"a/a.go": code, "x.bug": header + c.places}))
			kept := t.TempDir()
			err := command([]string{"seed", kept, "x.bug"})
			got, _ := os.ReadFile("a/a.go")
			if c.err {
				if err == nil || !strings.Contains(err.Error(), c.want) || string(got) != code {
					t.Errorf("error %v, and the file is %q; want %q, and no change", err, got, c.want)
				}
				return
			}
			if err != nil || string(got) != c.want {
				t.Errorf("seeded: %v, %q; want %q", err, got, c.want)
			}
			if err := command([]string{"remove", kept}); err != nil {
				t.Error(err)
			}
			if got, _ := os.ReadFile("a/a.go"); string(got) != code {
				t.Errorf("put back: %q", got)
			}
			if _, err := os.Stat(kept); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the folder is left: %v", err)
			}
		})
	}
}

// A test that compares the text of the code finds no bug: it fails with any change.
func TestComparing(t *testing.T) {
	t.Parallel()
	for run, want := range map[string]string{
		"TestWireDocHasTheScript$": "TestWireDocHasTheScript",
		"TestWireDoc":              "TestWireDocHasTheScript",
		"TestContract$":            "TestContract",
		"TestContractFinds$":       "",
		"TestWireDocEnqueues$":     "",
		"TestStore$/single$/Wire$": "",
	} {
		_, err := parse("x.bug", []byte("# test: ./a -run '"+run+"'\n# why: it is wrong\n@ a/a.go\n-\ttwo()\n"))
		if (err != nil) != (want != "") || want != "" && !strings.Contains(err.Error(), want+" compares") {
			t.Errorf("%s: %v, want an error that names %q", run, err, want)
		}
	}
	files, err := filepath.Glob("../store/*_test.go")
	inScripts, err2 := filepath.Glob("../store/scripts/*_test.go")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	files = append(files, inScripts...)
	for _, name := range comparisons {
		if !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "\nfunc "+name+"(")
		}) {
			t.Errorf("internal/store has no test %s", name)
		}
	}
}

func TestMoved(t *testing.T) {
	t.Chdir(write(t, map[string]string{"a/a.go": code, "x.bug": header + "@ gone/a.go\n-\ttwo()\n"}))
	if err := command([]string{"moved", "x.bug"}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile("x.bug"); string(text) != header+"@ a/a.go\n-\ttwo()\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// What has changed since a commit decides which bugs are tried.
func TestChoose(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	test := "package a\n\nfunc TestA(t *testing.T) {\n\ta()\n}\n\nfunc TestOther(t *testing.T) {\n\ta()\n}\n"
	table := "package a\n\nvar tests = []test{\n\t{\"SubA\", testSubA},\n}\n\nfunc testSubA(t *testing.T) {\n\ta()\n}\n"
	lua := "local function a()\n  one()\nend\n"
	of := func(run, place string) string { return "# test: ./a -run '" + run + "'\n# why: it is wrong\n" + place }
	dir := write(t, map[string]string{
		"a/a.go": code, "a/a.lua": lua, "a/a_test.go": test, "a/table_test.go": table,
		"testdata/mutants/inA.bug":   of("TestA$", "@ a/a.go\n-\ttwo()\n"),
		"testdata/mutants/inB.bug":   of("TestA$", "@ a/a.go\n func b() {\n-\tone()\n"),
		"testdata/mutants/lua.bug":   of("TestOther$", "@ a/a.lua\n-  one()\n"),
		"testdata/mutants/sub.bug":   of("TestOther$/single$/SubA$", "@ a/a.lua\n-  one()\n"),
		"testdata/mutants/none.bug":  of("TestNone$", "@ a/a.lua\n-  one()\n"),
		"testdata/mutants/was.patch": "a patch\n",
	})
	t.Chdir(dir)
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "all were found")
	commit := git("rev-parse", "HEAD")
	for name, c := range map[string]struct {
		file, from, to string
		want           string
	}{
		"nothing":                      {"a/a.go", "", "", ""},
		"the function of one":          {"a/a.go", "\ttwo()", "\n\ttwo()", "inA"},
		"the function of the other":    {"a/a.go", "\tone()\n}", "\tone()\n\tlast()\n}", "inB"},
		"what stands above it":         {"a/a.go", "func b() {", "// b is new.\nfunc b() {", "inB"},
		"a script":                     {"a/a.lua", "end", "\nend", "lua none sub"},
		"a test":                       {"a/a_test.go", "TestA(t *testing.T) {", "TestA(t *testing.T) {\n\tb()", "inA inB none"},
		"another test":                 {"a/a_test.go", "TestOther(t *testing.T) {", "TestOther(t *testing.T) {\n\tb()", "lua none sub"},
		"a test of a table":            {"a/table_test.go", "testSubA(t *testing.T) {", "testSubA(t *testing.T) {\n\tb()", "none sub"},
		"a bug":                        {"testdata/mutants/lua.bug", "wrong", "bad", "lua"},
		"a new file":                   {"a/new_test.go", "", "package a\n", "none"},
		"a bug that has no test there": {"testdata/mutants/inA.bug", "TestA", "TestNone", "inA"},
	} {
		t.Run(name, func(t *testing.T) {
			was, err := os.ReadFile(c.file)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if err := os.WriteFile(c.file, []byte(strings.Replace(string(was), c.from, c.to, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			defer func() {
				git("checkout", "-q", ".")
				git("clean", "-qfd")
			}()
			files, err := filepath.Glob("testdata/mutants/*.bug")
			if err != nil {
				t.Fatal(err)
			}
			chosen, err := choose(commit, 1<<30, "head", files)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, file := range chosen {
				got = append(got, strings.TrimSuffix(filepath.Base(file), ".bug"))
			}
			want := strings.Fields(c.want)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("chosen are %v, want %v", got, want)
			}
			if err := errors.Join(os.Rename("testdata/mutants/was.patch", "testdata/mutants/was.bug"), os.WriteFile("testdata/mutants/was.bug", []byte(of("TestA$", "@ a/a.go\n func b() {\n-\tone()\n")), 0o600)); err != nil {
				t.Fatal(err)
			}
			if same, err := choose(commit, 1<<30, "head", []string{"testdata/mutants/was.bug"}); err != nil || (len(same) == 0) == slices.Contains(want, "inB") {
				t.Errorf("of what was a patch: %v, %v", same, err)
			}
			if all, err := choose(commit, 1, "head", files); err != nil || len(all) != len(files) {
				t.Errorf("of each one: %v, %v", all, err)
			}
		})
	}
}
