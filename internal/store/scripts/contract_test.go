package scripts

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// The contract of the scripts: a function reads its parameters, its locals, what is constant (also the names of keys), and functions that stand before it. No script has
// a global.
func TestContract(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	breaches := func(where string, names []string) {
		for _, name := range names {
			t.Errorf("%s reads %s, which is neither a parameter nor a local of it, nor a constant, nor a function", where, name)
		}
	}
	for _, name := range luaFiles(t, ".") {
		for _, f := range functionsOf(t, name) {
			breaches(name+"."+f.name, f.reads)
		}
		if globals := globalsOf(t, source(name)); len(globals) > 0 {
			t.Errorf("%s.lua, as it is sent, has the globals %v", name, globals)
		}
	}
	before := make(map[string]bool)
	for _, p := range passages() {
		breaches(p.chapter+"."+p.name, readsOf(t, p.chapter+"."+p.name, p.text))
		for _, name := range freeNames(parsed(t, p.name, p.text)) {
			if defined(name) && !before[name] {
				t.Errorf("chapter %s: %s reads %s, which stands behind it", p.chapter, p.name, name)
			}
		}
		if before[p.name] {
			t.Errorf("chapter %s: there is another %s", p.chapter, p.name)
		}
		before[p.name] = true
	}
}

// library are the names that Redis gives to a script.
var library = strings.Fields("KEYS ARGV redis string table math bit cjson cmsgpack struct tonumber tostring type ipairs pairs next select unpack error pcall assert rawget rawset setmetatable getmetatable")

// A reading is what a part of a script reads that isn't declared in it, in the order of the names.
type reading struct {
	name  string
	reads []string
}

// readsOf returns what a piece of a script reads that it doesn't declare, but for keys, and for functions and constants of chapters.
func readsOf(t *testing.T, name, text string) []string {
	t.Helper()
	return slices.DeleteFunc(freeNames(parsed(t, name, text)), func(name string) bool {
		return slices.Contains(library, name) && name != "ARGV" || defined(name) || isKey(name)
	})
}

// isKey reports whether a name is that of a key: such a name is a constant of each script.
func isKey(name string) bool {
	return name != "ARGV" && strings.ToUpper(name) == name
}

// defined reports whether a chapter has this function, or constant.
func defined(function string) bool {
	return slices.ContainsFunc(passages(), func(p passage) bool { return p.name == function })
}

// globalsOf returns the names that a whole script reads or writes, and doesn't declare.
func globalsOf(t *testing.T, text string) []string {
	t.Helper()
	return slices.DeleteFunc(freeNames(parsed(t, "a script", text)), func(name string) bool { return slices.Contains(library, name) })
}

// functionsOf returns what the functions of a script's own text read that is neither theirs, nor constant, nor a function.
func functionsOf(t *testing.T, name string) []reading {
	t.Helper()
	chunk := parsed(t, name, read(name))
	steady := make(map[string]bool)
	counts := make(map[string]int)
	for _, s := range chunk {
		if l, ok := s.(*ast.LocalAssignStmt); ok {
			for i, n := range l.Names {
				counts[n]++
				steady[n] = i < len(l.Exprs) && len(l.Names) == len(l.Exprs) && constant(l.Exprs[i])
			}
		}
	}
	assigned(reflect.ValueOf(chunk), func(n string) { counts[n] += 2 })
	var all []reading
	for _, s := range chunk {
		l, ok := s.(*ast.LocalAssignStmt)
		if !ok || len(l.Exprs) != 1 {
			continue
		}
		if _, ok := l.Exprs[0].(*ast.FunctionExpr); !ok {
			continue
		}
		var names []string
		for _, free := range freeNames([]ast.Stmt{l}) {
			if !slices.Contains(library, free) && !defined(free) && !isKey(free) && !(steady[free] && counts[free] == 1) {
				names = append(names, free)
			}
		}
		all = append(all, reading{l.Names[0], names})
	}
	return all
}

// constant reports whether an expression is one, or a function.
func constant(e ast.Expr) bool {
	switch e := e.(type) {
	case ast.ConstExpr, *ast.FunctionExpr:
		return true
	case *ast.AttrGetExpr: // of the library: string.sub
		o, ok := e.Object.(*ast.IdentExpr)
		return ok && slices.Contains(library, o.Value) && o.Value != "KEYS" && o.Value != "ARGV"
	case *ast.TableExpr:
		full := len(e.Fields) > 0 // an empty one is filled later
		for _, field := range e.Fields {
			full = full && constant(field.Value)
		}
		return full
	}
	return false
}

// assigned calls f for each name that is assigned to anywhere, but for its declaration.
func assigned(v reflect.Value, f func(string)) {
	walkLua(v, func(node any) bool {
		if a, ok := node.(*ast.AssignStmt); ok {
			for _, l := range a.Lhs {
				if n, ok := l.(*ast.IdentExpr); ok {
					f(n.Value)
				}
			}
		}
		return true
	})
}

func parsed(t *testing.T, name, text string) []ast.Stmt {
	t.Helper()
	chunk, err := parse.Parse(strings.NewReader(text), name)
	if err != nil {
		t.Fatalf("%s.lua: %v", name, err)
	}
	return chunk
}

// freeNames returns, in order, the names that are used and not declared.
func freeNames(chunk []ast.Stmt) []string {
	s := &scopes{free: make(map[string]bool)}
	s.block(chunk)
	names := make([]string, 0, len(s.free))
	for n := range s.free {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// scopes follows which names are declared.
type scopes struct {
	declared []string
	free     map[string]bool
}

// block looks at statements whose locals end with them.
func (s *scopes) block(stmts []ast.Stmt, names ...string) {
	before := len(s.declared)
	s.declared = append(s.declared, names...)
	for _, stmt := range stmts {
		s.visit(reflect.ValueOf(stmt))
	}
	s.declared = s.declared[:before]
}

// visit looks at a part of the tree.
func (s *scopes) visit(v reflect.Value) {
	walkLua(v, func(node any) bool {
		switch n := node.(type) {
		case *ast.IdentExpr:
			if !slices.Contains(s.declared, n.Value) {
				s.free[n.Value] = true
			}
		case *ast.LocalAssignStmt:
			recursive := len(n.Exprs) == 1
			if recursive {
				_, recursive = n.Exprs[0].(*ast.FunctionExpr)
			}
			if recursive {
				s.declared = append(s.declared, n.Names...)
			}
			s.visit(reflect.ValueOf(n.Exprs))
			if !recursive {
				s.declared = append(s.declared, n.Names...)
			}
		case *ast.FunctionExpr:
			names := slices.Clone(n.ParList.Names)
			if n.ParList.HasVargs {
				names = append(names, "arg")
			}
			s.block(n.Stmts, append(names, "self")...)
		case *ast.NumberForStmt:
			s.visit(reflect.ValueOf([]ast.Expr{n.Init, n.Limit, n.Step}))
			s.block(n.Stmts, n.Name)
		case *ast.GenericForStmt:
			s.visit(reflect.ValueOf(n.Exprs))
			s.block(n.Stmts, n.Names...)
		case *ast.DoBlockStmt:
			s.block(n.Stmts)
		case *ast.WhileStmt:
			s.visit(reflect.ValueOf(n.Condition))
			s.block(n.Stmts)
		case *ast.RepeatStmt: // its condition sees its locals
			s.block(append(slices.Clone(n.Stmts), &ast.ReturnStmt{Exprs: []ast.Expr{n.Condition}}))
		case *ast.IfStmt:
			s.visit(reflect.ValueOf(n.Condition))
			s.block(n.Then)
			s.block(n.Else)
		default:
			return true
		}
		return false
	})
}

// walkLua calls f for each node at and below v, from the top; f says whether to go on below it.
func walkLua(v reflect.Value, f func(any) bool) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			walkLua(v.Elem(), f)
		}
	case reflect.Pointer:
		if !v.IsNil() && f(v.Interface()) {
			walkLua(v.Elem(), f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				walkLua(v.Field(i), f)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			walkLua(v.Index(i), f)
		}
	}
}

// The test finds what it looks for.
func TestContractFinds(t *testing.T) {
	t.Parallel()
	for lua, want := range map[string]string{
		"local a = 1 return a + b":                         "b",
		"local function f(x) return x + y end return f(1)": "y",
		"local a = a":                                                           "a",
		"local function f() return f end":                                       "",
		"local f = function(...) return arg, self end":                          "",
		"for i = n, 2 do local x = i end return x":                              "n x",
		"for k, v in pairs(l) do k = v end return k":                            "k l pairs",
		"repeat local done = true until done":                                   "",
		"while w do local w2 = w end return w2":                                 "w w2",
		"if c then local d = 1 else return d end":                               "c d",
		"do local e end e = 1":                                                  "e",
		"t.x = u[v] function t.m() return q end return {[k] = z, key = -g, #h}": "g h k q t u v z",
	} {
		if got := fmt.Sprint(strings.Join(freeNames(parsed(t, lua, lua)), " ")); got != want {
			t.Errorf("%s: %q, want %q", lua, got, want)
		}
	}
}
