package scripts

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Each line of each script is where its position says.
func TestPositions(t *testing.T) {
	t.Parallel()
	files := make(map[string][]string)
	for _, name := range luaFiles(t, ".") {
		lines, positions := strings.Split(strings.TrimSuffix(source(name), "\n"), "\n"), positionsOf(name)
		if len(lines) != len(positions) {
			t.Errorf("%s.lua has %d lines as it is sent, and %d positions", name, len(lines), len(positions))
			continue
		}
		for i, p := range positions {
			want := ""
			if p.line > 0 {
				want = fileLine(files, p)
			}
			if strings.Contains(want, "-- has a line for each key") {
				continue // this one is written for the script
			}
			if p.line == 0 {
				if !strings.Contains("\n"+seldomHead+seldomBegins+seldomEnds+"}\n", "\n"+lines[i]+"\n") && !chapterLine.MatchString(lines[i]) {
					t.Errorf("%s.lua, line %d is %q, and has no position", name, i+1, lines[i])
				}
				continue
			}
			if line := asInFile(name, lines[i]); strings.TrimSpace(line) != strings.TrimSpace(want) {
				t.Errorf("%s.lua, line %d is %q, and %+v is %q", name, i+1, lines[i], p, want)
			}
		}
	}
}

var (
	chapterLine = regexp.MustCompile(`^(?:if chapter == '\w+' then|functions = \{)$`)
	lateReading = regexp.MustCompile(`\(made\.\w+ or seldom\('\w+'\)\)\.|seldom\('\w+'\)\.|made\.\w+\.`)
	lateHead    = regexp.MustCompile(`^(\w+) = function\(`)
	keyNumber   = regexp.MustCompile(`KEYS\[(\d+)\]`)
)

// asInFile returns a line of a script that Redis gets as it stands in its file.
func asInFile(name, line string) string {
	names := unpacked(read(name), "KEYS")
	line = lateHead.ReplaceAllString(lateReading.ReplaceAllString(line, ""), "local function $1(")
	line = keyNumber.ReplaceAllStringFunc(line, func(key string) string {
		n, _ := strconv.Atoi(keyNumber.FindStringSubmatch(key)[1])
		return names[n-1]
	})
	if line == "end," {
		return "end"
	}
	return line
}

// fileLine returns a line of a file of the scripts. files has those that were read.
func fileLine(files map[string][]string, p position) string {
	file := map[string]string{"chapter": "chapters/"}[p.kind] + p.name
	if files[file] == nil {
		files[file] = strings.Split(read(file), "\n")
	}
	return files[file][p.line-1]
}

// Replies that name a line, in each of their forms, are told with the line of the file; others are unchanged.
func TestLocated(t *testing.T) {
	t.Parallel()
	s := &Script{name: "claim", positions: func() []position {
		return []position{{"script", "claim", 1, ""}, {}, {"chapter", "endings", 57, ""}, {"chapter", "endings", 58, ""}, {"script", "claim", 9, ""}}
	}}
	const hash = " script: 35881ddbcbee78afecef4bd4364ae875757192b9, on @user_script:"
	for given, want := range map[string]string{
		"WRONGTYPE Operation against a key holding the wrong kind of value" + hash + "3.":              "WRONGTYPE Operation against a key holding the wrong kind of value: chapter endings, line 57 (script claim)",
		"OOM command not allowed when used memory > 'maxmemory'." + hash + "5.":                        "OOM command not allowed when used memory > 'maxmemory': script claim, line 9",
		"ERR user_script:4: attempt to index local 'x' (a nil value)" + hash + "4.":                    "ERR attempt to index local 'x' (a nil value): chapter endings, line 58 (script claim)",
		"ERR The user executing the script can't run this command or subcommand" + hash + "1.":         "ERR The user executing the script can't run this command or subcommand: script claim, line 1",
		"ERR ACL failure in script: User u has no permissions to run the 'get' command" + hash + "1.":  "ERR ACL failure in script: User u has no permissions to run the 'get' command: script claim, line 1",
		"ERR Error compiling script (new function): user_script:2: '=' expected near 'here'":           "ERR Error compiling script (new function): '=' expected near 'here': script claim, line 2 of what Redis got",
		"ERR Error compiling script (new function): :3: WRONGTYPE Operation stack traceback:  [G]: in": "WRONGTYPE Operation: chapter endings, line 57 (script claim)",
		"ERR Error compiling script (new function): :6: attempt to index stack traceback:  :6: in":     "ERR attempt to index: script claim, line 6 of what Redis got",
		"LAYOUT 3 is newer":          "LAYOUT 3 is newer",
		"OOM command not allowed":    "OOM command not allowed",
		"WRONGTYPE on user_script:3": "WRONGTYPE on user_script:3",
	} {
		reply := replyError(given)
		err := s.located(reply)
		same(t, given, err.Error(), want)
		var answer redis.Error
		if !errors.Is(err, reply) || !errors.As(err, &answer) || answer.Error() != given {
			t.Errorf("%s: the reply is %v", given, answer)
		}
	}
}

// A replyError is an error as go-redis returns it when Redis has answered.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError is go-redis' mark.
func (replyError) RedisError() {}
