package settings

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
)

// Each setting that a Config can say is a field of Wanted, and each form is that of what is written. The scripts and the docs know the same settings.
func TestSettingsAgree(t *testing.T) {
	t.Parallel()
	limits, kept := signalbox.Limits{Running: 1, Rate: signalbox.Rate{Jobs: 2, Per: 3e9, Burst: 4}}, signalbox.Retention{Jobs: 1}
	w := Wanted{limits, limits, 1_000_000_000, map[string]signalbox.Limits{"a": limits}, "copies", kept, kept}
	said := 0
	var keep, fields []string
	for _, s := range allSettings {
		fields = append(fields, s.field)
		if s.keeps {
			keep = append(keep, s.field)
		}
		if s.config == "" {
			continue
		}
		said++
		if text := s.wanted(&w); !s.form.MatchString(text) || s.wanted(&Wanted{}) != "" || s.inWords(text) == "" || s.inWords("") != "none" || settingOf(s.field) != s {
			t.Errorf("%s: %q, and %q if Config says nothing", s.field, text, s.wanted(&Wanted{}))
		}
	}
	if n := reflect.TypeFor[Wanted]().NumField(); said != n {
		t.Errorf("a Config can say %d settings, and Wanted has %d", said, n)
	}
	for field, want := range map[string]string{"quiet:w": quietField, "cron:a:b": "cron:", "slots": slotsField, "quiet": "", "limits_": "", "of limits": ""} {
		got := ""
		if s := settingOf(field); s != nil {
			got = s.field
		}
		if got != want {
			t.Errorf("%s is of the setting %q, want %q", field, got, want)
		}
	}

	slices.Sort(keep)
	lua, err := os.ReadFile("../scripts/chapters/removal.lua")
	if err != nil {
		t.Fatal(err)
	}
	made := regexp.MustCompile(`(?s)local made_settings = \{\n(.*?)\n\}`).FindStringSubmatch(string(lua))
	if made == nil {
		t.Fatal("chapters/removal.lua has no table made_settings")
	}
	var inLua []string
	for _, field := range regexp.MustCompile(`(\w+) = true`).FindAllStringSubmatch(made[1], -1) {
		inLua = append(inLua, field[1])
	}
	slices.Sort(inLua)
	if !slices.Equal(inLua, keep) {
		t.Errorf("settings that keep a queue: %v in removal.lua, and %v in Go", inLua, keep)
	}

	text, err := os.ReadFile("../../../docs/wire/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range fields {
		if !strings.Contains(string(text), "`"+field) {
			t.Errorf("docs/wire/settings.md has no setting %s", field)
		}
	}
}

// What is remembered of a setting says which of the values counts that workers tell.
func TestWhatCounts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "x": "", "1 worker w 2\n1 0 * 5 0 0 0\n": "5 0 0 0", "1 worker w 2\n1 180000000 * 5 0 0 0\n2 0 - a\n": "a"} {
		if got := memoryOf(text).counts; got != want {
			t.Errorf("of %q counts %q, want %q", text, got, want)
		}
	}
}
