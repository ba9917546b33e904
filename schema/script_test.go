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
			if want := "CREATE TABLE IF NOT EXISTS " + prefix + "LOCK (\n"; !strings.Contains(text, want) {
				t.Errorf("%s, %s: no %q in\n%s", name, prefix, want, text)
			}
			if want := "CONSTRAINT " + constraint + " PRIMARY KEY"; !strings.Contains(text, want) {
				t.Errorf("%s, %s: no %q in\n%s", name, prefix, want, text)
			}
			drop, err := schema.DropScript(name, prefix)
			if want := "DROP TABLE IF EXISTS " + prefix + "LOCK;\n"; err != nil || drop != want {
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
		if got := schema.Statements(text); len(got) != 1 || !strings.HasPrefix(got[0], "CREATE TABLE") || strings.HasSuffix(got[0], ";") {
			t.Errorf("%s: split into %q; want the one CREATE TABLE, without its semicolon", name, got)
		}
	}
}

func TestMySQLAndMariaDBShareOneTable(t *testing.T) {
	one, _ := schema.Script(vendor.MySQL, "INT_")
	two, _ := schema.Script(vendor.MariaDB, "INT_")
	if one != two {
		t.Error("mysql.sql and mariadb.sql differ; the code assumes one layout for both")
	}
}
