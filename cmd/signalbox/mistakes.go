package main

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// fieldFlags are the flags from which fields of Go come that errors name. Where there are several, that one counts which the command has and which was given.
var fieldFlags = map[string][]string{
	"Move.To":             {"to"},
	"Prioritise.To":       {"to"},
	"Cancel.Why":          {"why"},
	"Reschedule.At":       {"at", "after"},
	"Edit.MaxAttempts":    {"max-attempts"},
	"Edit.Timeout":        {"job-timeout"},
	"Filter.OlderThan":    {"older-than"},
	"Filter.NewerThan":    {"newer-than"},
	"Filter.Limit":        {"limit"},
	"Removal.UnusedFor":   {"unused-for"},
	"Retention.Jobs":      {"keep-jobs", "keep-completed-jobs"},
	"Retention.Bytes":     {"keep-bytes", "keep-completed-bytes"},
	"Retention.Age":       {"keep-age", "keep-completed-age"},
	"Limits.Running":      {"running"},
	"Limits.Rate.Jobs":    {"rate"},
	"Limits.Rate.Per":     {"rate"},
	"Limits.Rate.Burst":   {"burst"},
	"At":                  {"at"},
	"After":               {"after"},
	"MaxAttempts":         {"max-attempts"},
	"Timeout":             {"job-timeout"},
	"Retain":              {"retain"},
	"ExpireAfter":         {"expire-after"},
	"Deadline":            {"deadline"},
	"Header":              {"header"},
	"EnqueueTimeout":      {"timeout"},
	"TraceURL":            {"trace-url"},
	"time":                {"for"},
	"slots":               {"slots"},
	"maximum length":      {"length"},
	"copies of dead jobs": {"copy-dead"},
}

// fieldNamed finds what an error says is invalid.
var fieldNamed = regexp.MustCompile(`\b(?:invalid )?([A-Za-z][A-Za-z. ]*): `)

// goWords are what else errors of wrong arguments say in words of Go.
var goWords = strings.NewReplacer(", and 0, and signalbox.NoLimit", ", or none", ", RetainNone, or 0 to leave it to the queue", ", or none")

// inFlags returns an error of a wrong argument with the names of the command's flags, in place of the fields of Go that the flags set.
func inFlags(c *cobra.Command, text string) string {
	if c == nil {
		return text
	}
	return goWords.Replace(fieldNamed.ReplaceAllStringFunc(text, func(part string) string {
		field := fieldNamed.FindStringSubmatch(part)[1]
		found := ""
		for _, name := range fieldFlags[strings.TrimPrefix(field, "invalid ")] {
			if f := c.Flags().Lookup(name); f != nil && (found == "" || f.Changed) {
				found = name
			}
		}
		if found == "" {
			return part
		}
		return "--" + found + ": "
	}))
}
