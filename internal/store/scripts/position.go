package scripts

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A position is a line of a file of the scripts. The zero position is that of a line that is in no file.
type position struct {
	kind string // of the file: "chapter" or "script"
	name string // of the file
	line int    // from 1
	key  string // the name of the key that is read there, if the line was written for it: see passage.in
}

// positionsOf returns where the lines of a script stand, as Redis gets it: the first line is at 0. See source.
func positionsOf(name string) []position {
	var all []position
	for _, piece := range piecesOf(read(name)) {
		n := strings.Count(piece.text, "\n")
		switch {
		case piece.line > 0:
			for i := range n {
				all = append(all, position{kind: "script", name: name, line: piece.line + i})
			}
		case piece.passage != nil:
			all = append(all, piece.passage.positions(read(name))...)
		default:
			all = append(all, make([]position, n)...)
		}
	}
	return all
}

// positions returns where the lines of a passage stand, as it is in a script. Lines that were written for the script have the position of the one that
// they replace.
func (p *passage) positions(script string) (all []position) {
	own, sent := strings.Split(p.text, "\n"), strings.Split(p.in(script), "\n")
	line := strings.Count(p.text[:commentOf(p.text)], "\n")
	for i := range len(sent) - 1 {
		for sent[i] != own[line] && p.name != "check_keys" && isComment(own[line]) {
			line++
		}
		at := position{kind: "chapter", name: p.chapter, line: p.line + line}
		written := sent[i] != own[line]
		if found := keyRead.FindStringSubmatch(sent[i]); written && found != nil {
			at.key = found[1]
		}
		if !written || sent[i+1] == own[line+1] {
			line++
		}
		all = append(all, at)
	}
	return all
}

// keyRead is what a line of check_keys reads.
var keyRead = regexp.MustCompile(`redis\.call\('\w+', (.+)\)$`)

// A positionError is an error reply of a script that says in which line it arose. Its text has that line's file, and the line there. The reply itself is
// what errors.As finds as a redis.Error.
type positionError struct {
	text  string
	reply error
}

func (e *positionError) Error() string { return e.text }

func (e *positionError) Unwrap() error { return e.reply }

// How replies name a line. Redis and Valkey:
//
//	WRONGTYPE Operation against a key holding the wrong kind of value script: <hash>, on @user_script:812.
//	ERR user_script:812: attempt to index local 'x' (a nil value) script: <hash>, on @user_script:812.
//	ERR Error compiling script (new function): user_script:812: '=' expected near 'x'
//
// The embedded Redis:
//
//	ERR Error compiling script (new function): :812: WRONGTYPE Operation against a key holding the wrong kind of value stack traceback:  [G]: in function 'call' ...
var (
	lineBehind   = regexp.MustCompile(`(?s)^(.*?) script: \w+, on @user_script:(\d+)\.?$`)
	lineInFront  = regexp.MustCompile(`(?s)^((?:ERR )?(?:Error compiling script \(new function\): )?)@?user_script:(\d+): (.*)$`)
	lineEmbedded = regexp.MustCompile(`(?s)^ERR Error compiling script \(new function\): :(\d+): (.*?) stack traceback:`)
	errorCode    = regexp.MustCompile(`^[A-Z]+ `)
)

// located returns an error that says where in the scripts' files it arose: of an error reply of the script that names a line. It returns other errors unchanged.
func (s *Script) located(err error) error {
	text, line := err.Error(), ""
	if found := lineBehind.FindStringSubmatch(text); found != nil {
		text, line = found[1], found[2]
	}
	if found := lineInFront.FindStringSubmatch(text); found != nil {
		text, line = found[1]+found[3], found[2]
	}
	if found := lineEmbedded.FindStringSubmatch(text); found != nil {
		if text, line = found[2], found[1]; !errorCode.MatchString(text) {
			text = "ERR " + text
		}
	}
	n, _ := strconv.Atoi(line)
	if n < 1 {
		return err
	}
	return &positionError{text: strings.TrimSuffix(text, ".") + ": " + s.where(n), reply: err}
}

// where says in which file line n of the script stands, as Redis counts.
func (s *Script) where(n int) string {
	positions := s.positions()
	switch {
	case n > len(positions) || positions[n-1].line == 0:
		return fmt.Sprintf("script %s, line %d of what Redis got", s.name, n)
	case positions[n-1].kind == "script":
		return fmt.Sprintf("script %s, line %d", s.name, positions[n-1].line)
	}
	p, key := positions[n-1], ""
	if p.key != "" {
		key = ", key " + p.key
	}
	return fmt.Sprintf("%s %s, line %d%s (script %s)", p.kind, p.name, p.line, key, s.name)
}
