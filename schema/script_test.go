package schema_test

import (
	"os"
	"strings"
	"testing"

	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/schema"
)

func TestScriptIsTheFileForTheDefaultPrefix(t *testing.T) {
	for _, name := range vendor.All() {
		for file, render := range map[string]func(string, string) (string, error){
			name + ".sql":           schema.Script,
			"drop-" + name + ".sql": schema.DropScript,
		} {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := render(name, vendor.DefaultPrefix)
			if err != nil || got != string(want) {
				t.Errorf("%s: got %q, %v; want the file's text", file, got, err)
			}
		}
	}
}

func TestScriptReplacesThePrefixEverywhere(t *testing.T) {
	for _, name := range vendor.All() {
		for prefix, constraint := range map[string]string{
			"APP_":         "APP_LOCK_PK",
			"sales.APP_":   "APP_LOCK_PK", // a constraint has no schema part
			"INT_LOCK_PK_": "INT_LOCK_PK_LOCK_PK",
			"x":            "xLOCK_PK",
		} {
			text, err := schema.Script(name, prefix)
			if err != nil {
				t.Errorf("%s, %s: %v", name, prefix, err)
				continue
			}
			source := "TABLE"
			if name == vendor.Postgres || name == vendor.MariaDB {
				source = "SEQUENCE"
			}
			for _, want := range []string{
				"CREATE TABLE IF NOT EXISTS " + prefix + "LOCK (\n",
				"CREATE " + source + " IF NOT EXISTS " + prefix + "LOCK_TOKEN",
				"CREATE TABLE IF NOT EXISTS " + prefix + "LOCK_FENCE (\n",
				"CONSTRAINT " + constraint + " PRIMARY KEY",
				"CONSTRAINT " + strings.TrimSuffix(constraint, "_PK") + "_FENCE_PK PRIMARY KEY",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("%s, %s: no %q in\n%s", name, prefix, want, text)
				}
			}
			drop, err := schema.DropScript(name, prefix)
			want := "DROP TABLE IF EXISTS " + prefix + "LOCK;\n" +
				"DROP " + source + " IF EXISTS " + prefix + "LOCK_TOKEN;\n" +
				"DROP TABLE IF EXISTS " + prefix + "LOCK_FENCE;\n"
			if name == vendor.Postgres {
				want += "DROP FUNCTION IF EXISTS " + prefix + "LOCK_NOTIFY();\n"
			}
			if err != nil || drop != want {
				t.Errorf("%s, %s: drop script %q, %v; want %q", name, prefix, drop, err, want)
			}
		}
	}
}

func TestScriptRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, name := range []string{"", "oracle", "Postgres", "../schema/postgres", "drop-mysql"} {
		if text, err := schema.Script(name, "INT_"); err == nil || text != "" {
			t.Errorf("vendor %q: got %q, %v; want an error", name, text, err)
		}
	}
	for _, prefix := range hostile {
		if text, err := schema.Script(vendor.Postgres, prefix); err == nil || text != "" {
			t.Errorf("prefix %q: got %q, %v; want an error", prefix, text, err)
		}
		if text, err := schema.DropScript(vendor.Postgres, prefix); err == nil || text != "" {
			t.Errorf("prefix %q: got %q, %v; want an error", prefix, text, err)
		}
	}
}

// The splitter reads lines, not SQL. Each script must keep to what it knows.
func TestScriptsKeepToOneStatementPerSemicolonAtALinesEnd(t *testing.T) {
	for _, name := range vendor.All() {
		text, _ := schema.Script(name, vendor.DefaultPrefix)
		drop, _ := schema.DropScript(name, vendor.DefaultPrefix)
		for line := range strings.Lines(text + drop) {
			line = strings.TrimSuffix(line, "\n")
			at := strings.Index(line, ";")
			if strings.HasPrefix(line, "--") {
				if strings.HasSuffix(line, ";") {
					t.Errorf("%s: a comment ends with a semicolon: %q", name, line)
				}
				continue
			}
			if at >= 0 && at != len(line)-1 {
				t.Errorf("%s: a semicolon that ends no line: %q", name, line)
			}
			if strings.Contains(line, "--") || strings.Contains(line, "/*") {
				t.Errorf("%s: a comment that shares its line: %q", name, line)
			}
			if strings.TrimSpace(line) != line && strings.HasSuffix(line, " ") {
				t.Errorf("%s: trailing blank: %q", name, line)
			}
		}
		// Apply picks the statements of what is missing by their place.
		got := schema.Statements(text)
		if len(got) != 3 {
			t.Fatalf("%s: split into %q; want three statements", name, got)
		}
		for i, want := range []string{vendor.Table("INT_"), vendor.TokenSource("INT_"), vendor.FenceTable("INT_")} {
			words := strings.Fields(got[i])
			if words[0] != "CREATE" || words[5] != want || strings.HasSuffix(got[i], ";") {
				t.Errorf("%s: statement %d is %q; want the one that creates %s, without its semicolon", name, i, got[i], want)
			}
		}
	}
}

func TestMySQLAndMariaDBShareOneLockTable(t *testing.T) {
	one, _ := schema.Script(vendor.MySQL, "INT_")
	two, _ := schema.Script(vendor.MariaDB, "INT_")
	if schema.Statements(one)[0] != schema.Statements(two)[0] {
		t.Error("mysql.sql and mariadb.sql differ; the code assumes one layout for both")
	}
}
