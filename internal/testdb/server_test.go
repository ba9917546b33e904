package testdb

import (
	"os"
	"strings"
	"testing"

	"github.com/intlock/intlock/internal/vendor"
)

func env(pairs map[string]string) func(string) string {
	return func(key string) string { return pairs[key] }
}

func TestAbsentNamesTheCommand(t *testing.T) {
	for name, f := range probe(env(nil)) {
		if f.server != nil {
			t.Fatalf("%s: a server from nowhere", name)
		}
		for _, want := range []string{name, "make test", DSNEnv(name), SkipEnv + "=" + name} {
			if !strings.Contains(f.problem, want) {
				t.Errorf("%q does not name %q", f.problem, want)
			}
		}
	}
}

func TestMessagesHoldNoPassword(t *testing.T) {
	const secret = "hunter2"
	for _, dsn := range []map[string]string{
		{vendor.Postgres: "postgres://u:" + secret + "@127.0.0.1:1/db?sslmode=disable"},
		{vendor.Postgres: "postgres://u:" + secret + "@127.0.0.1:x y/db"},
		{vendor.Postgres: "host=127.0.0.1 password=" + secret},
		{vendor.MySQL: "root:" + secret + "@tcp(127.0.0.1:1)/"},
		{vendor.MySQL: "root:" + secret + "@tcp(127.0.0.1:1)"},
		{vendor.MariaDB: "postgres://u:" + secret + "@127.0.0.1:1/db"},
	} {
		for name, value := range dsn {
			f := probe(env(map[string]string{DSNEnv(name): value}))[name]
			if f.server != nil || !strings.Contains(f.problem, DSNEnv(name)) {
				t.Errorf("%s: want a problem that names %s, got %q", name, DSNEnv(name), f.problem)
			}
			if strings.Contains(f.problem, secret) {
				t.Errorf("%s: the message holds the password", name)
			}
		}
	}
}

// The server decides who it is, not the variable it was put in.
func TestMariaDBBehindMySQLVariable(t *testing.T) {
	Open(t, vendor.MariaDB)
	f := probe(env(map[string]string{DSNEnv(vendor.MySQL): os.Getenv(DSNEnv(vendor.MariaDB))}))
	if s := f[vendor.MariaDB].server; s == nil || s.vendor != vendor.MariaDB {
		t.Errorf("mariadb: %+v, want the server that was put behind %s", f[vendor.MariaDB], DSNEnv(vendor.MySQL))
	}
	if p := f[vendor.MySQL]; p.server != nil || !strings.Contains(p.problem, "answered by mariadb") {
		t.Errorf("mysql: %+v, want it absent because mariadb answered", p)
	}
}

func TestSkipped(t *testing.T) {
	t.Setenv(SkipEnv, "mysql, mariadb")
	if got := strings.Join(Skipped(), "+"); got != "mysql+mariadb" {
		t.Errorf("Skipped() = %s", got)
	}
	ran := false
	t.Run("mysql", func(t *testing.T) {
		Open(t, vendor.MySQL)
		ran = true
	})
	if ran {
		t.Error("a vendor in " + SkipEnv + " was not left out")
	}
}
