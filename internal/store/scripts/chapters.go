package scripts

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// chapters are the files of scripts/chapters, in their order. They have functions, and constants. A function reads its parameters, keys,
// constants, and functions that stand before it: in its chapter, or in one that comes before.
var chapters = []string{
	"keys", "time", "lanes", "statistics", "settings", "wake", "upcoming", "ready",
	"record", "places", "retention", "sessions", "uniques", "limits", "groups",
	"flow_links", "flow_states", "endings", "other_ends", "acts", "flows", "flow_passes", "outcomes", "promotion", "closer", "starts", "claims", "cron", "call_uniques", "call_groups", "requests", "judging", "arrivals", "calls", "flow_calls", "looks", "crashes", "repairs", "removal",
}

// seldom are the chapters of what only some jobs need. Redis makes the functions of a script anew in each call, which takes some 0.1 us for each. So
// those of such a chapter are made when one of them is called, unless the script has but a few of them.
var seldom = []string{
	"lanes", "wake", "record", "places", "retention", "sessions", "uniques", "limits", "groups", "flow_links", "flow_states", "other_ends", "outcomes", "promotion", "closer", "starts", "acts", "flows", "flow_passes", "cron", "call_uniques", "call_groups", "requests", "judging", "arrivals", "flow_calls", "looks", "crashes", "repairs", "removal",
}

// few is how many functions a script may have that only some jobs need, and that are made all the same.
const few = 12

// A passage is a function of a chapter, or a constant, with the comment in front of it.
type passage struct {
	chapter string
	line    int // where it begins in the file, from 1
	name    string
	text    string
	sent    string   // the text without lines of comments
	calls   []string // the names of passages among the words of its code
	code    bool     // whether it is a function
}

// passageHead is what a passage begins with, at the margin. A passage of more than one line ends with a line that begins with end or with a
// brace, at the margin.
var passageHead = regexp.MustCompile(`^local (?:function )?(\w+)`)

// passages are those of all chapters, in their order. They are read once in a process.
var passages = sync.OnceValue(func() (all []passage) {
	for _, chapter := range chapters {
		all = append(all, passagesOf(chapter, read("chapters/"+chapter))...)
	}
	names := make(map[string]bool, len(all))
	for i := range all {
		names[all[i].name] = true
	}
	for i := range all {
		p := &all[i]
		eachWord(p.text, func(from, to int) {
			if word := p.text[from:to]; names[word] && !slices.Contains(p.calls, word) {
				p.calls = append(p.calls, word)
			}
		})
	}
	return all
})

// passagesOf returns the passages of a chapter. What stands before the first empty line says what the chapter is about.
func passagesOf(chapter, text string) (all []passage) {
	lines := strings.Split(text, "\n")
	begin := slices.Index(lines, "") + 1
	for i := begin; i < len(lines); i++ {
		switch {
		case strings.HasPrefix(lines[i], "local "):
			name := passageHead.FindStringSubmatch(lines[i])[1]
			if strings.HasPrefix(lines[i], "local function ") || strings.HasSuffix(lines[i], "{") {
				for lines[i] != "end" && lines[i] != "}" {
					i++
				}
			}
			all = append(all, passage{chapter: chapter, line: begin + 1, name: name, text: strings.Join(lines[begin:i+1], "\n") + "\n"})
			begin = i + 1
		case lines[i] == "":
			begin = i + 1
		}
	}
	for i := range all {
		all[i].sent = withoutComments(all[i].text)
		all[i].code = strings.Contains(all[i].text, "local function "+all[i].name+"(")
	}
	return all
}

// eachWord calls f with the place of each word of Lua's code: not those in strings in single quotes and in comments, nor fields. It reads by the byte:
// a program that starts has no time for more.
func eachWord(lua string, f func(from, to int)) {
	isWord := func(i int) bool {
		return i < len(lua) && (lua[i] == '_' || lua[i] >= '0' && lua[i] <= '9' || lua[i] >= 'a' && lua[i] <= 'z' || lua[i] >= 'A' && lua[i] <= 'Z')
	}
	behind := func(i int) int {
		for isWord(i) {
			i++
		}
		return i
	}
	for i := 0; i < len(lua); {
		switch c := lua[i]; {
		case c == '\'':
			for i++; i < len(lua) && lua[i] != '\'' && lua[i] != '\n'; i++ {
				if lua[i] == '\\' {
					i++
				}
			}
			i++
		case c == '-' && strings.HasPrefix(lua[i:], "--"):
			for i < len(lua) && lua[i] != '\n' {
				i++
			}
		case c == '.' && strings.HasPrefix(lua[i:], ".."):
			i += 2
		case c == '.' || c == ':':
			for i++; i < len(lua) && lua[i] == ' '; i++ {
			}
			i = behind(i)
		case isWord(i):
			from := i
			if i = behind(i); c < '0' || c > '9' {
				f(from, i)
			}
		default:
			i++
		}
	}
}

func wordsOf(lua string) map[string]bool {
	words := make(map[string]bool)
	eachWord(lua, func(from, to int) { words[lua[from:to]] = true })
	return words
}

// pick returns the text of a script as Redis gets it: its first lines up to the names of its keys, then the functions of chapters that it reaches, each
// once and in the order of the chapters, then the rest of it. What is picked is found by names: a passage is taken if its name is a word of what has been
// taken. A test with a parser shows that what is picked is what is reached. What only some jobs need is made when it is called, see seldom. Lines of
// comments are left out, but for those in the script's own code.
func pick(text string) string {
	var out strings.Builder
	for _, p := range piecesOf(text) {
		out.WriteString(p.text)
	}
	return out.String()
}

// A piece is a part of a script as Redis gets it, of whole lines.
type piece struct {
	text    string
	passage *passage // nil if it isn't one
	line    int      // of the script's own text, from 1; 0 if it isn't of that
}

// piecesOf returns the pieces of a script that has this text.
func piecesOf(text string) (all []piece) {
	often, deferred := pickedFor(text)
	numbers := make(map[string]int)
	for i, name := range unpacked(text, "KEYS") {
		numbers[name] = i + 1
	}
	homes := make(map[string]string) // of deferred functions, by their names
	for _, p := range deferred {
		if p.isFunction() {
			homes[p.name] = p.chapter
		}
	}
	add := func(text string) { all = append(all, piece{text: text}) }
	comment, head := commentOf(text), headOf(text)
	all = append(all, piece{text: text[comment:head], line: strings.Count(text[:comment], "\n") + 1})
	if len(deferred) > 0 {
		add(seldomHead)
	}
	for _, p := range often {
		all = append(all, piece{text: written(p.in(text), "", homes, numbers), passage: p})
	}
	if len(deferred) > 0 {
		add(seldomBegins)
		for _, chapter := range chapters {
			own := slices.DeleteFunc(slices.Clone(deferred), func(p *passage) bool { return p.chapter != chapter })
			if len(own) == 0 {
				continue
			}
			add(fmt.Sprintf("if chapter == '%s' then\n", chapter))
			for _, p := range own {
				if !p.isFunction() {
					all = append(all, piece{text: written(p.in(text), chapter, homes, numbers), passage: p})
				}
			}
			add("functions = {\n")
			for _, p := range own {
				if p.isFunction() {
					lua := strings.TrimPrefix(p.in(text), "local function "+p.name)
					lua = written(lua, chapter, homes, numbers)
					all = append(all, piece{text: p.name + " = function" + strings.TrimSuffix(lua, "end\n") + "end,\n", passage: p})
				}
			}
			add("}\nend\n")
		}
		add(seldomEnds)
	}
	return append(all, piece{text: written(text[head:], "", homes, nil), line: strings.Count(text[:head], "\n") + 1})
}

// pickedFor returns the passages that a script with this text needs, in the order of the chapters: those that are always made, and those that are made
// when one of their chapter is called. A constant that others than its chapter read is always made.
func pickedFor(text string) (often, deferred []*passage) {
	all := passages()
	words, called := wordsOf(text), wordsOf(text) // called: of what is always made
	outside := wordsOf(text)                      // of the script, and of other chapters than the one that comes next
	chapter := make(map[string]bool)              // words of that one
	var reached []*passage
	for i := len(all) - 1; i >= 0; i-- {
		p := &all[i]
		if i+1 < len(all) && all[i+1].chapter != p.chapter {
			for name := range chapter {
				outside[name] = true
			}
			clear(chapter)
		}
		if !words[p.name] {
			continue
		}
		reached = append(reached, p)
		for _, name := range p.calls {
			words[name], chapter[name] = true, true
		}
		if called[p.name] && !slices.Contains(seldom, p.chapter) || !p.isFunction() && outside[p.name] {
			often = append(often, p)
			for _, name := range p.calls {
				called[name] = true
			}
		} else {
			deferred = append(deferred, p)
		}
	}
	if len(deferred) < few {
		often, deferred = reached, nil
	}
	slices.Reverse(often)
	slices.Reverse(deferred)
	return often, deferred
}

// What makes the functions that only some jobs need: it returns those of a chapter. They stand in made as well.
const (
	seldomHead   = "local made, seldom = {}, nil\n"
	seldomBegins = "seldom = function(chapter)\nlocal functions = made[chapter]\nif functions then\nreturn functions\nend\n"
	seldomEnds   = "made[chapter] = functions\nreturn functions\nend\n"
)

// written returns a text of a chapter, or of none, as it stands in a script. Calls of deferred functions have them made first: free_keys(x) becomes
// seldom('uniques').free_keys(x), and in what is deferred itself made.uniques.free_keys(x) in that chapter, and
// (made.uniques or seldom('uniques')).free_keys(x) in others, which is quicker, but for where a statement begins: there Lua takes a parenthesis for the
// arguments of a call in the line before. homes has the chapters of deferred functions by their names. Keys that have numbers are called by them: KEYS[2] for
// JOBS. A function that reads a local of the script has to search for it when it is made, which takes longer than to find an element of a list when it is
// called.
func written(text, chapter string, homes map[string]string, numbers map[string]int) string {
	if len(homes)+len(numbers) == 0 {
		return text
	}
	var out strings.Builder
	at := 0
	eachWord(text, func(from, to int) {
		word := text[from:to]
		own, number := homes[word], numbers[word]
		if own == "" && number == 0 {
			return
		}
		out.WriteString(text[at:from])
		at = to
		line := text[strings.LastIndexByte(text[:from], '\n')+1 : from]
		switch {
		case number > 0:
			fmt.Fprintf(&out, "KEYS[%d]", number)
		case own == chapter:
			fmt.Fprintf(&out, "made.%s.%s", own, word)
		case chapter == "" || strings.TrimSpace(line) == "":
			fmt.Fprintf(&out, "seldom('%s').%s", own, word)
		default:
			fmt.Fprintf(&out, "(made.%s or seldom('%s')).%s", own, own, word)
		}
	})
	return out.String() + text[at:]
}

func (p *passage) isFunction() bool { return p.code }

// withoutComments returns a text without the lines that have nothing but a comment.
func withoutComments(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !isComment(line) {
			out.WriteString(line)
		}
	}
	return out.String()
}

func isComment(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " "), "--") }

// in returns the text of a passage in a script, without lines of comments. That of check_keys has a line for each key that the script names, and one for those of sessions behind them.
func (p *passage) in(script string) string {
	if p.name != "check_keys" {
		return p.sent
	}
	names := unpacked(script, "KEYS")
	var reads strings.Builder
	for _, name := range names {
		fmt.Fprintf(&reads, "  redis.call('%s', %s)\n", layout.Reads[name], name)
	}
	if strings.Contains(script, "local first_session = ") {
		fmt.Fprintf(&reads, "  for k = %d, #KEYS do\n    redis.call('HLEN', KEYS[k])\n  end\n", len(names)+1)
	}
	before, after, _ := strings.Cut(p.text[commentOf(p.text):], "  -- has a line for each key")
	return before + reads.String() + after[strings.Index(after, "\n")+1:]
}

// commentOf returns the length of the comment in front of a text.
func commentOf(text string) (n int) {
	for strings.HasPrefix(text[n:], "--") {
		n += strings.Index(text[n:], "\n") + 1
	}
	return n
}

// headOf returns the length of a script's first lines: its comment, and the line with the names of its keys, if there is one.
func headOf(text string) int {
	if at := strings.Index(text, " = unpack(KEYS"); at >= 0 {
		return at + strings.Index(text[at:], "\n") + 1
	}
	return strings.Index(text, "\n\n") + 1
}
