package opendb

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

func TestDriverFor(t *testing.T) {
	for dsn, want := range map[string][2]string{
		"postgres://u:p@h/db":                            {"postgres", "postgres://u:p@h/db"},
		"u:p@tcp(h:3306)/db":                             {"mysql", "u:p@tcp(h:3306)/db"},
		"mysql://u:p%40x@h/db":                           {"mysql", "u:p@x@tcp(h:3306)/db"},
		"mariadb://u@h:3307/db?clientFoundRows=true":     {"mysql", "u@tcp(h:3307)/db?clientFoundRows=true"},
		"/tmp/x.db":                                      {"sqlite", "file:/tmp/x.db?"},
		"sqlite:/tmp/a b.db":                             {"sqlite", "file:/tmp/a%20b.db?"},
		"file:/tmp/x.db?_pragma=busy_timeout(1)&cache=x": {"sqlite", "file:/tmp/x.db?"},
	} {
		driver, got, err := driverFor(dsn)
		if err != nil || driver != want[0] || !strings.HasPrefix(got, want[1]) {
			t.Errorf("%s: %s, %s, %v, want %s", dsn, driver, got, err, want)
		}
		if driver == "sqlite" && (strings.Count(got, "busy_timeout") != 1 || !strings.Contains(got, "_txlock=immediate")) {
			t.Errorf("%s: %s", dsn, got)
		}
	}
	for _, dsn := range []string{"", "oracle://u:canary@h/db", "postgres://u:ca%nary@h/db", "u:canary@tcp(h:3306)/", "mysql://u:canary@h/",
		"mysql://u:ca%nary@h/db", "sqlite:", "file::memory:", "file:x?mode=memory", "host=h password=canary"} {
		if driver, got, err := driverFor(dsn); err == nil || strings.Contains(err.Error(), "nary") {
			t.Errorf("%s: %s, %s, %v", dsn, driver, got, err)
		}
	}
}

func TestOpen(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, dsn := range []string{"postgres://u:canary@127.0.0.1:1/db", "mysql://u:canary@127.0.0.1:1/db"} {
		if _, err := Open(context.Background(), dsn, 1); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v", err)
		}
	}
}
