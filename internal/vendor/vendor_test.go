package vendor

import (
	"strings"
	"testing"
)

// What servers call themselves.
func TestParse(t *testing.T) {
	for version, want := range map[string]string{
		"PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc": Postgres,
		"PostgreSQL 11.2-YB-2.21.0.0-b0 on x86_64-pc-linux-gnu":                             Postgres,
		"9.7.4":                               MySQL,
		"8.0.39-0ubuntu0.22.04.1":             MySQL,
		"8.0.mysql_aurora.3.05.2":             MySQL,
		"10.11.19-MariaDB-0+deb12u1":          MariaDB,
		"5.5.5-10.6.12-MariaDB-log":           MariaDB,
		"5.5.5-10.5.29-MariaDB-log":           "",
		"11.4.2-MariaDB-ubu2404":              MariaDB,
		"10.4.34-MariaDB":                     "",
		"5.7.44":                              "",
		"8.0.11-TiDB-v7.5.0":                  "",
		"CockroachDB CCL v23.1.0 (x86_64...)": "",
		"something else":                      "",
	} {
		got, err := parse(version)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("parse(%q) = %q, %v, want %q", version, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), strings.Fields(version)[0]) {
			t.Errorf("parse(%q): %q does not name the version", version, err)
		}
	}
	for version, ok := range map[string]bool{"3.42.0": true, "3.54.1": true, "4.0.0": true, "3.41.2": false, "3.8.7": false} {
		if err := checkSQLite(version); (err == nil) != ok {
			t.Errorf("SQLite %s: %v", version, err)
		}
	}
}

func TestCheckPrefix(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"INT_": true, "int_": true, "app.INT_": true, "_x": true, "A1_": true,
		strings.Repeat("x", 41):     true,
		strings.Repeat("x", 42):     false,
		"":                          false,
		"1_":                        false,
		"a.b.c_":                    false,
		".INT_":                     false,
		"INT ":                      false,
		"INT-":                      false,
		`INT"`:                      false,
		"INT'":                      false,
		"INT;":                      false,
		"INT%s":                     false,
		"INT\x00":                   false,
		"INT\n":                     false,
		"INT\xff":                   false,
		"ÏNT_":                      false,
		strings.Repeat("x", 10_000): false,
	} {
		err := CheckPrefix(prefix)
		if (err == nil) != ok {
			t.Errorf("CheckPrefix(%.50q) = %v", prefix, err)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("CheckPrefix of %d bytes gives an error of %d", len(prefix), len(err.Error()))
		}
	}
}
