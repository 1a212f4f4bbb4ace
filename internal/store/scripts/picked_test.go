package scripts

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/gopher-lua/ast"
)

// What pick takes is what a script reaches: nothing is missing, nothing is there in vain, and nothing twice.
func TestPicked(t *testing.T) {
	t.Parallel()
	used := make(map[string]bool)
	for _, name := range luaFiles(t, ".") {
		picked := make(map[string]bool)
		for _, piece := range piecesOf(read(name)) {
			if p := piece.passage; p != nil {
				picked[p.name], used[p.name] = true, true
			}
		}
		defined := make(map[string]int)
		walkLua(reflect.ValueOf(parsed(t, name, source(name))), func(node any) bool {
			switch n := node.(type) {
			case *ast.LocalAssignStmt:
				if len(n.Exprs) == 1 && is[*ast.FunctionExpr](n.Exprs[0]) {
					defined[n.Names[0]]++
				}
			case *ast.Field:
				if key, ok := n.Key.(*ast.StringExpr); ok && is[*ast.FunctionExpr](n.Value) {
					defined[key.Value]++
				}
			}
			return true
		})
		for f := range picked {
			if defined[f] > 1 {
				t.Errorf("%s.lua has %s %d times", name, f, defined[f])
			}
		}
		if reached := reachedBy(t, name); !maps.Equal(picked, reached) {
			t.Errorf("%s.lua has %v, and reaches %v", name, slices.Sorted(maps.Keys(picked)), slices.Sorted(maps.Keys(reached)))
		}
	}
	for _, p := range passages() {
		if !used[p.name] {
			t.Errorf("chapter %s: no script uses %s", p.chapter, p.name)
		}
	}
}

// is reports whether a part of a syntax tree is of this kind.
func is[T any](node any) bool {
	_, ok := node.(T)
	return ok
}

// reachedBy returns the functions and constants of chapters that a script's own text reads, and those that these read, by the syntax trees.
func reachedBy(t *testing.T, name string) map[string]bool {
	t.Helper()
	reads := make(map[string][]string)
	for _, p := range passages() {
		reads[p.name] = freeNames(parsed(t, p.name, p.text))
	}
	reached := make(map[string]bool)
	var visit func(names []string)
	visit = func(names []string) {
		for _, n := range names {
			if _, ok := reads[n]; ok && !reached[n] {
				reached[n] = true
				visit(reads[n])
			}
		}
	}
	visit(freeNames(parsed(t, name, read(name))))
	return reached
}

// The files of chapters are those that are named, and each is one that a person reads in a sitting.
func TestChapters(t *testing.T) {
	t.Parallel()
	files := luaFiles(t, "chapters")
	if named := slices.Sorted(slices.Values(chapters)); !slices.Equal(files, named) {
		t.Errorf("the files are %v, and the chapters %v", files, named)
	}
	for _, chapter := range files {
		text := read("chapters/" + chapter)
		declared := 0
		for _, stmt := range parsed(t, chapter, text) {
			if l, ok := stmt.(*ast.LocalAssignStmt); !ok || len(l.Names) != 1 {
				t.Errorf("chapter %s, line %d: want only functions and constants, one a statement", chapter, stmt.Line())
			}
			declared++
		}
		found := 0
		for _, p := range passagesOf(chapter, text) {
			found++
			if at := strings.Split(text, "\n")[p.line-1]; !strings.HasPrefix(p.text, at+"\n") {
				t.Errorf("chapter %s: %s begins in line %d, %q", chapter, p.name, p.line, at)
			}
			if strings.HasPrefix(p.text, "local function ") {
				t.Errorf("chapter %s: %s has no comment", chapter, p.name)
			}
		}
		if found != declared {
			t.Errorf("chapter %s: %d passages are read, and %d are there", chapter, found, declared)
		}
	}
}

// The scripts are written in the Lua that eachWord and passagesOf read.
func TestPlainLua(t *testing.T) {
	t.Parallel()
	for _, chapter := range chapters {
		for _, odd := range oddities(t, "chapters/"+chapter, read("chapters/"+chapter)) {
			t.Error(odd)
		}
	}
	for _, name := range luaFiles(t, ".") {
		for _, odd := range oddities(t, name, read(name)) {
			t.Error(odd)
		}
	}
	inner := passages()[len(passages())-1].name
	for lua, want := range map[string]string{
		"local a = 'x \\' \"'\n-- \"b\"\nlocal c = #{1, 2}":             "",
		"local a =\n  \"JOBS\"":                                         "x.lua:2: a string in double quotes",
		"local a = [[JOBS]]":                                            "x.lua:1: a long bracket",
		"local a = 1 --[[JOBS\n]]":                                      "x.lua:1: a long bracket",
		"local a = t[t[1]]":                                             "",
		"local a = 1 local b = 2":                                       "x.lua:1: two statements",
		"if a then\n  a = 1 b = 2\nend":                                 "x.lua:2: two statements",
		"local function f()\n  local function " + inner + "() end\nend": "x.lua:2: " + inner + " is a function of a chapter, too",
		"local function f(" + inner + ") end":                           "x.lua:1: " + inner + " is a function of a chapter, too",
	} {
		if got := strings.Join(oddities(t, "x", lua), "; "); got != want {
			t.Errorf("%s: %q, want %q", lua, got, want)
		}
	}
}

// oddities returns what the pickers of functions would misread in a script or chapter: strings that aren't in single quotes, two statements in a line, and a
// local with the name of a function of a chapter.
func oddities(t *testing.T, file, text string) (odd []string) {
	t.Helper()
	say := func(line int, what string) { odd = append(odd, fmt.Sprintf("%s.lua:%d: %s", file, line, what)) }
	code := regexp.MustCompile(`'(?:\\.|[^'\\\n])*'|--[^\[\n][^\n]*|--\n`).ReplaceAllString(text, "''")
	for i, line := range strings.Split(code, "\n") {
		if strings.Contains(line, `"`) {
			say(i+1, "a string in double quotes")
		}
		if regexp.MustCompile(`(^|[=(,{ -])\[=*\[`).MatchString(line) {
			say(i+1, "a long bracket")
		}
	}
	chunk := parsed(t, file, text)
	outer := make(map[string]bool) // the file's own functions
	for _, stmt := range chunk {
		if l, ok := stmt.(*ast.LocalAssignStmt); ok && strings.HasPrefix(file, "chapters/") {
			outer[l.Names[0]] = true
		}
	}
	own := func(line int, depth int, names ...string) {
		for _, name := range names {
			if defined(name) && !(depth == 0 && outer[name]) {
				say(line, name+" is a function of a chapter, too")
			}
		}
	}
	var look func(block []ast.Stmt, depth int)
	look = func(block []ast.Stmt, depth int) {
		for i, stmt := range block {
			if i > 0 && block[i-1].Line() == stmt.Line() {
				say(stmt.Line(), "two statements")
			}
			walkLua(reflect.ValueOf(stmt), func(node any) bool {
				switch n := node.(type) {
				case *ast.LocalAssignStmt:
					own(n.Line(), depth, n.Names...)
				case *ast.FunctionExpr:
					own(n.Line(), depth+1, n.ParList.Names...)
					look(n.Stmts, depth+1)
					return false
				case *ast.NumberForStmt:
					own(n.Line(), depth, n.Name)
					look(n.Stmts, depth+1)
					return false
				case *ast.GenericForStmt:
					own(n.Line(), depth, n.Names...)
					look(n.Stmts, depth+1)
					return false
				case *ast.IfStmt:
					look(n.Then, depth+1)
					look(n.Else, depth+1)
					return false
				}
				return true
			})
		}
	}
	look(chunk, 0)
	return odd
}

// What is read at once is short: a chapter, a function, a transition, and what Redis gets.
func TestSizes(t *testing.T) {
	t.Parallel()
	above := func(limits exceptions, name string, size, limit int) {
		e, excepted := limits[name]
		switch {
		case excepted && size <= limit:
			t.Errorf("%s has %d lines, and may have %d: take it off the list", name, size, limit)
		case excepted && size > e.lines:
			t.Errorf("%s has %d lines, more than the %d that the list lets it have: %s", name, size, e.lines, e.reason)
		case excepted && size < e.lines-fewLines:
			t.Errorf("%s has %d lines: let it have no more, the list says %d", name, size, e.lines)
		case !excepted && size > limit:
			t.Errorf("%s has %d lines, want at most %d", name, size, limit)
		}
	}
	seen := make(map[string]bool)
	functions := func(where, text string) {
		for name, lines := range functionLines(t, where, text) {
			seen[name] = true
			above(longFunctions, name, lines, 60)
		}
	}
	for _, chapter := range chapters {
		text := read("chapters/" + chapter)
		above(nil, "the chapter "+chapter, strings.Count(text, "\n"), 400)
		functions(chapter, text)
	}
	for _, name := range luaFiles(t, ".") {
		seen[name] = true
		text := read(name)
		functions(name, text)
		above(longTransitions, name, codeLines(text), 120)
		above(longScripts, name, strings.Count(source(name), "\n"), 1000)
	}
	for _, list := range []exceptions{longFunctions, longTransitions, longScripts} {
		for name, e := range list {
			if !seen[name] || e.reason == "" {
				t.Errorf("the list has %s, which isn't there, or has no reason", name)
			}
		}
	}
}

// fewLines is how much shorter an exception may be than its list says.
const fewLines = 5

// exceptions are what may be longer than TestSizes wants, for a reason: up to so many lines. What gets shorter has to stay so.
type exceptions map[string]struct {
	lines  int
	reason string
}

// longFunctions are functions, by chapter and name.
var longFunctions = exceptions{
	"closer.draw_turns": {65, "the loop of a claim that takes jobs of groups"},
}

// longTransitions have more lines of code.
var longTransitions = exceptions{
	"claim": {160, "each function of it would cost each claim some 0.1 us: it settles, draws, grants, wakes, and says when to come again"},
}

// longScripts are longer as Redis gets them.
var longScripts = exceptions{
	"act":     {1408, "it takes jobs out of any place and puts them into any"},
	"claim":   {2307, "it is what jobs of each kind need of a claim and a settlement"},
	"add":     {1521, "it is the same for members of a flow"},
	"enqueue": {1396, "it is what jobs of each kind need to be put in"},
	"flow":    {1205, "it puts in jobs that wait, and has them go on"},
	"mend":    {1117, "it does each of the repairs"},
	"pass":    {1315, "it takes jobs out of any place, and has others go on"},
	"reclaim": {1281, "it has jobs go on that wait for flows"},
	"relay":   {1411, "it is the same for a batch of an outbox"},
	"tend":    {1091, "it has jobs go on that wait for flows"},
	"then":    {2017, "it is the same for follow-ups, and how a claim ends their job"},
}

// functionLines returns how many lines each function of a text has, from its head to its end, by the names of the text and of the functions that it
// stands in. The lines of a function in it are counted for that one only: so a constructor is as long as what is around its functions.
func functionLines(t *testing.T, where, text string) map[string]int {
	t.Helper()
	lines := make(map[string]int)
	var count func(v reflect.Value, where string) int
	count = func(v reflect.Value, where string) (all int) {
		name := ""
		walkLua(v, func(node any) bool {
			switch n := node.(type) {
			case *ast.LocalAssignStmt:
				name = n.Names[0]
			case *ast.FuncDefStmt: // function object.name()
				name = n.Name.Func.(*ast.AttrGetExpr).Key.(*ast.StringExpr).Value
			case *ast.FunctionExpr:
				path, own := where+"."+name, n.LastLine()-n.Line()+1
				lines[path] += own - count(reflect.ValueOf(n.Stmts), path)
				all += own
				return false
			}
			return true
		})
		return all
	}
	count(reflect.ValueOf(parsed(t, where, text)), where)
	return lines
}

// codeLines returns how many lines of a script have code.
func codeLines(text string) (n int) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			n++
		}
	}
	return n
}

func TestFunctionLines(t *testing.T) {
	t.Parallel()
	lines := functionLines(t, "x", `
local function new(a)
  local o = {}

  -- Adds.
  function o.add(b)
    return a + b
  end

  return o
end
local f = function() end
`)
	if want := map[string]int{"x.new": 7, "x.new.add": 3, "x.f": 1}; !maps.Equal(lines, want) {
		t.Errorf("%v, want %v", lines, want)
	}
}

func TestWordsOf(t *testing.T) {
	t.Parallel()
	for lua, want := range map[string]string{
		"local a = b.c .. d":              "a b d local",
		"x = 'count it''s' -- ready":      "x",
		"f('-- no comment', g) -- 'h'":    "f g",
		"a..b":                            "a b",
		"redis.call('HGET', JOBS, '\\'')": "JOBS redis",
		"t[count] = {note = 1}":           "count note t",
		"o:method(p)":                     "o p",
	} {
		same(t, lua, strings.Join(slices.Sorted(maps.Keys(wordsOf(lua))), " "), want)
	}
}
