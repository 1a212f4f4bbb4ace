package store

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
	same(t, "settings that a Config can say", said, reflect.TypeFor[Wanted]().NumField())
	for field, want := range map[string]string{"quiet:w": quietField, "cron:a:b": "cron:", "slots": slotsField, "quiet": "", "limits_": "", "of limits": ""} {
		got := ""
		if s := settingOf(field); s != nil {
			got = s.field
		}
		same(t, field, got, want)
	}

	slices.Sort(keep)
	made := regexp.MustCompile(`(?s)local made_settings = \{\n(.*?)\n\}`).FindStringSubmatch(fileOf(t, "chapters/removal"))
	if made == nil {
		t.Fatal("chapters/removal.lua has no table made_settings")
	}
	var inLua []string
	for _, field := range regexp.MustCompile(`(\w+) = true`).FindAllStringSubmatch(made[1], -1) {
		inLua = append(inLua, field[1])
	}
	slices.Sort(inLua)
	equal(t, "settings that keep a queue, in removal.lua", inLua, keep)

	text, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range fields {
		if !strings.Contains(string(text), "`"+field) {
			t.Errorf("docs/wire.md has no setting %s", field)
		}
	}
}
