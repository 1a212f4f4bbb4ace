package pglock

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/signalbox-go/signalbox/lock"
)

//go:embed sql/*.sql
var files embed.FS

// DefaultTable is the table's name unless [Config] has another.
const DefaultTable = "signalbox_lock"

// tableName is a name, or a schema and a name, that means the same with and without quotes.
var tableName = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,62}$`)

// Schema returns the statement that creates a table if it doesn't exist; "" is [DefaultTable]. Run it as a migration, or
// copy it. The user of the locker needs SELECT, INSERT and UPDATE on the table.
func Schema(table string) (string, error) {
	if table == "" {
		table = DefaultTable
	}
	if err := checkTable(table); err != nil {
		return "", err
	}
	return statement("schema", table), nil
}

func checkTable(table string) error {
	if !tableName.MatchString(table) {
		return fmt.Errorf("%w: Table is %.200q; it must be name or schema.name, each of 1 to 63 of a-z, 0-9 and _, and not begin with a digit", lock.ErrInvalid, table)
	}
	return nil
}

// quoted returns a table's name as it stands in statements. A keyword can be a name, too.
func quoted(table string) string { return `"` + strings.ReplaceAll(table, ".", `"."`) + `"` }

// statement returns the text of sql/name.sql for a table, without its comments.
func statement(name, table string) string {
	text, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // the compiler has embedded it
	}
	s := strings.ReplaceAll(string(text), "{table}", quoted(table))
	if name == "schema" {
		return s // people read it
	}
	var lines []string
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, ""))
}

// statements are the texts for one table.
type statements struct{ acquire, extend, release, inspect, preflight string }

func statementsFor(table string) statements {
	return statements{
		acquire: statement("acquire", table), extend: statement("extend", table), release: statement("release", table),
		inspect: statement("inspect", table), preflight: statement("preflight", table),
	}
}
