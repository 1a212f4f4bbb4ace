package settings

import (
	"regexp"
	"strings"
)

// A setting is one that a queue can have: a field of its settings. What is said here counts for all who look at settings. Two lists of it are elsewhere: made_settings
// of chapters/removal.lua, and the fields of a file's settings in package inspect. TestSettingsAgree and TestEverySettingGoesAlong compare them with this one.
type setting struct {
	field  string                    // with a ':' at its end if a name follows
	form   *regexp.Regexp            // of its values
	config string                    // the field of Config that can say it: "Limits"; "" if none can
	wanted func(w *Wanted) string    // the value that a Config says; "" if it says nothing
	words  func(value string) string // a value that isn't "" in words, for logs and people
	bounds bool                      // it bounds what runs, or how many jobs there are
	keeps  bool                      // somebody has made it: a queue that has it isn't removed unless that is asked for
}

const (
	threeAmounts = `^[1-9]\d{0,14} [1-9]\d{0,14} [1-9]\d{0,14}$`
	fourNumbers  = `^\d{1,7} \d{1,7} \d{1,11} \d{1,7}$`
	aTime        = `^\d{1,18}$`
)

// allSettings are all of them. Other fields are those of other releases, what is remembered of a setting (see remembered), and the last changes. Those that a Config can say
// stand in the order in which they are told.
var allSettings = []*setting{
	{
		field: limitsField, config: "Limits", form: regexp.MustCompile(fourNumbers), bounds: true, keeps: true, words: limitsInWords,
		wanted: func(w *Wanted) string { return limitsText(w.Limits, "0") },
	},
	{
		field: groupLimitsField, config: "GroupLimits", form: regexp.MustCompile(fourNumbers), bounds: true, keeps: true, words: limitsInWords,
		wanted: func(w *Wanted) string { return limitsText(w.GroupLimits, "0") },
	},
	{
		field: limitsOfField, config: "LimitsOf", form: regexp.MustCompile(`^[0-9a-f]{32}$`), words: func(value string) string { return "those with the digest " + value[:min(8, len(value))] },
		wanted: (*Wanted).limitsOfText,
	},
	{
		field: lengthField, config: "MaxLength", form: regexp.MustCompile(`^([1-9]\d{0,8}|1000000000)$`), bounds: true, keeps: true,
		wanted: func(w *Wanted) string { return lengthText(w.MaxLength) },
	},
	{
		field: CopyField, config: "CopyDead", form: regexp.MustCompile(`^[!-z|~]{1,200}$`), keeps: true,
		wanted: func(w *Wanted) string { return w.CopyDead },
	},
	{
		field: keepField, config: "Retention", form: regexp.MustCompile(threeAmounts), keeps: true, words: retentionInWords,
		wanted: func(w *Wanted) string { return retentionText(w.Retention) },
	},
	{
		field: completedField, config: "CompletedRetention", form: regexp.MustCompile(threeAmounts), keeps: true, words: retentionInWords,
		wanted: func(w *Wanted) string { return retentionText(w.Completed) },
	},
	{field: slotsField, form: regexp.MustCompile(`^([1-9]\d{0,4}|100000)$`), keeps: true}, // to MaxSlots
	{field: pausedField, form: regexp.MustCompile(aTime)},
	{field: quietField, form: regexp.MustCompile(`^(stop )?\d{1,18}$`)},
	{field: "cron:", form: regexp.MustCompile(aTime)}, // since when the entry is paused
	{field: "layout", form: regexp.MustCompile(`^\d{1,3}$`)},
}

const (
	slotsField  = "slots"
	pausedField = "paused"
)

// settingOf returns the setting of a field, or nil if it is none.
func settingOf(field string) *setting {
	for _, s := range allSettings {
		if s.field == field || strings.HasSuffix(s.field, ":") && strings.HasPrefix(field, s.field) {
			return s
		}
	}
	return nil
}

// Readable reports whether a field of the settings has a value that can be read, or is none that is known.
func Readable(field, value string) bool {
	s := settingOf(field)
	return s == nil || s.form.MatchString(value)
}

// ofConfig returns the settings that a Config can say, in the order in which they are told.
func ofConfig() (all []*setting) {
	for _, s := range allSettings {
		if s.config != "" {
			all = append(all, s)
		}
	}
	return all
}

// inWords returns a value in words.
func (s *setting) inWords(value string) string {
	switch {
	case value == "":
		return "none"
	case s.words == nil:
		return value
	}
	return s.words(value)
}

func limitsInWords(value string) string { return LimitsWords(LimitsOf(value)) }

func retentionInWords(value string) string { return RetentionWords(keptOf(value)) }
