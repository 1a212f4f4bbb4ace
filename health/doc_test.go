package health_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/operations/health.md explains each code, and no other.
func TestDocumentedCodes(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("health.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../docs/operations/health.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Health\n")
	_, table, found := strings.Cut(section, "| code |")
	if !found {
		t.Fatal("docs/operations/health.md has no table of codes")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(table, -1)
	documented := make(map[string]bool)
	for _, row := range rows {
		documented[row[1]] = true
	}
	codes := regexp.MustCompile(`Code = "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(codes) < 10 || len(codes) != len(rows) {
		t.Errorf("%d codes, and %d rows", len(codes), len(rows))
	}
	for _, code := range codes {
		if !documented[code[1]] {
			t.Errorf("docs/operations/health.md doesn't explain %s", code[1])
		}
	}
}
