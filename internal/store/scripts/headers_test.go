package scripts

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/gopher-lua/ast"
)

// The header of a script explains each argument by its name, each word that a reply begins with, and each part of the reply that begins with 'ok'.
func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, name := range luaFiles(t, ".") {
		for _, lack := range unexplained(t, name, read(name)) {
			t.Errorf("%s.lua: the header doesn't explain %s", name, lack)
		}
	}
}

// The test finds what it looks for.
func TestHeadersFinds(t *testing.T) {
	t.Parallel()
	const code = "\nlocal a, _, b = unpack(ARGV, 1, 3)\nlocal c, i = ARGV[4], 5\nif a then\n  local d = unpack(ARGV, i)\n  return {'none'}\nend\nreturn {'ok', x}\n"
	for header, want := range map[string]string{
		"-- ARGV: a, b (us): two; c: one; d: one\n-- Reply: {'ok', time in us, x}; {'none'}\n--   x: a number\n": "",
		"-- ARGV: a: one; c: one\n-- Reply: {'ok', x}\n-- x: a number\n":                                         "the argument b, the argument d, the reply {'none'",
		"-- ARGV: a, b, c, d: four\n-- Reply: {'ok', time in us, x,\n--   y}; {'none'}\n-- y: a number\n":        "the part x of its reply",
		"-- ARGV: a, b, c and d\n-- Reply: {'ok', a}; {'none'}\n":                                                "the argument a, the argument b, the argument c, the argument d, the part a of its reply",
	} {
		if got := strings.Join(unexplained(t, "x", header+code), ", "); got != want {
			t.Errorf("%s: %q, want %q", header, got, want)
		}
	}
}

// unexplained returns what the header of a script doesn't explain: each of the names that the script gives to arguments and to parts of its reply stands, alone or
// in a list, in front of a colon; the words that replies begin with stand there as the script has them.
func unexplained(t *testing.T, name, text string) (lacks []string) {
	t.Helper()
	header := headerOf(text)
	explains := func(name string) bool {
		return regexp.MustCompile(`\b` + name + `(?: \([^)]*\))?(?:, \w+(?: \([^)]*\))?)*:`).MatchString(header)
	}
	chunk := parsed(t, name, text)
	for _, argument := range argumentsOf(chunk) {
		if !explains(argument) {
			lacks = append(lacks, "the argument "+argument)
		}
	}
	for _, word := range repliesOf(chunk) {
		if !strings.Contains(header, "{'"+word+"'") {
			lacks = append(lacks, "the reply {'"+word+"'")
		}
	}
	for _, reply := range regexp.MustCompile(`\{'ok', ([^}]*)\}`).FindAllStringSubmatch(header, -1) {
		for _, part := range strings.Split(reply[1], ", ") {
			if regexp.MustCompile(`^\w+$`).MatchString(part) && !explains(part) {
				lacks = append(lacks, "the part "+part+" of its reply")
			}
		}
	}
	return lacks
}

// headerOf returns the comment that a script begins with, in one line.
func headerOf(text string) string {
	var words []string
	for line := range strings.Lines(text) {
		comment, is := strings.CutPrefix(line, "--")
		if !is {
			break
		}
		words = append(words, strings.Fields(comment)...)
	}
	return strings.Join(words, " ")
}

// argumentsOf returns the names that a script gives to arguments: those of locals that are set to elements of ARGV, also where these are one by one, or some for each job.
func argumentsOf(chunk []ast.Stmt) (names []string) {
	walkLua(reflect.ValueOf(chunk), func(node any) bool {
		l, ok := node.(*ast.LocalAssignStmt)
		for i := 0; ok && i < len(l.Exprs); i++ {
			switch e := l.Exprs[i].(type) {
			case *ast.AttrGetExpr:
				if isName(e.Object, "ARGV") {
					names = append(names, l.Names[i])
				}
			case *ast.FuncCallExpr:
				if isName(e.Func, "unpack") && isName(e.Args[0], "ARGV") {
					names = append(names, l.Names[i:]...)
				}
			}
		}
		return true
	})
	return slices.DeleteFunc(names, func(name string) bool { return name == "_" })
}

// repliesOf returns the words that a script's replies begin with. Those that its functions return aren't replies.
func repliesOf(chunk []ast.Stmt) (words []string) {
	walkLua(reflect.ValueOf(chunk), func(node any) bool {
		if r, ok := node.(*ast.ReturnStmt); ok {
			for _, e := range r.Exprs {
				if reply, ok := e.(*ast.TableExpr); ok && len(reply.Fields) > 0 {
					if word, ok := reply.Fields[0].Value.(*ast.StringExpr); ok {
						words = append(words, word.Value)
					}
				}
			}
		}
		return !is[*ast.FunctionExpr](node)
	})
	return words
}

// isName reports whether an expression is this name.
func isName(e ast.Expr, name string) bool {
	n, ok := e.(*ast.IdentExpr)
	return ok && n.Value == name
}
