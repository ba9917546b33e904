//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		only, skip string
		env        map[string]string
		wanted     string
		told       string // what the command finds in INTLOCK_TEST_SKIP, if we change it
		err        bool
	}{
		{wanted: "postgres,mysql,mariadb"},
		{skip: "mysql", wanted: "postgres,mariadb"},
		{only: "mariadb", wanted: "mariadb", told: "postgres,mysql"},
		{only: "mariadb", skip: "sqlite", wanted: "mariadb", told: "sqlite,postgres,mysql"},
		{env: map[string]string{testdb.DSNEnv(vendor.MySQL): "x"}, wanted: "postgres,mariadb"},
		{only: "oracle", err: true},
	} {
		t.Setenv(testdb.SkipEnv, c.skip)
		wanted, env, err := choose(c.only, func(key string) string { return c.env[key] })
		if (err != nil) != c.err {
			t.Errorf("%+v: %v", c, err)
		}
		if got := strings.Join(wanted, ","); got != c.wanted {
			t.Errorf("%+v: starts %s", c, got)
		}
		told := ""
		if len(env) > 0 {
			_, told, _ = strings.Cut(env[0], "=")
		}
		if told != c.told {
			t.Errorf("%+v: told %s", c, told)
		}
	}
}

func TestRealMySQL(t *testing.T) {
	for banner, want := range map[string]bool{
		"mysqld  Ver 8.0.36 for Linux on x86_64 (MySQL Community Server - GPL)":                               true,
		"/x/9.1/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))":                                  true,
		"/usr/sbin/mysqld  Ver 5.7.44 for Linux on x86_64 (MySQL Community Server (GPL))":                     false,
		"/usr/sbin/mysqld  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)":         false,
		"/usr/sbin/mariadbd from 11.8.3-MariaDB, client 15.2 for debian-linux-gnu (x86_64) using EditLine wr": false,
		"": false,
	} {
		if got := isMySQL8(banner); got != want {
			t.Errorf("%q: %v", banner, got)
		}
	}
}

func TestForbidServices(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy-rc.d")
	read := func() string {
		text, err := os.ReadFile(policy)
		if os.IsNotExist(err) {
			return "(none)"
		}
		return string(text)
	}
	forbid := func() func() error {
		t.Helper()
		restore, err := forbidServices(policy)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(read(), "exit 101") {
			t.Errorf("services are not forbidden: %s", read())
		}
		return restore
	}

	if err := forbid()(); err != nil || read() != "(none)" {
		t.Errorf("without a policy before: %v, %s", err, read())
	}
	if err := os.WriteFile(policy, []byte("theirs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := forbid()(); err != nil || read() != "theirs" {
		t.Errorf("with a policy before: %v, %s", err, read())
	}
	forbid() // a run that is killed before it restores
	if err := forbid()(); err != nil || read() != "theirs" {
		t.Errorf("after a killed run: %v, %s", err, read())
	}
}

func TestKeepIsWholeOrNothing(t *testing.T) {
	from, cache := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(from, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "sub", "file"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("sub/file", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	template := filepath.Join(cache, "data", "x")
	for range 2 { // the second finds the first's template, as a parallel run does
		if err := keep(from, template); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(template, "link")); err != nil || string(text) != "data" {
		t.Errorf("%s, %v", text, err)
	}
	info, err := os.Stat(filepath.Join(template, "sub", "file"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "data", ".new-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A run that was killed leaves its folder; one that lives must keep it.
func TestSweep(t *testing.T) {
	base := t.TempDir()
	dead, alive := filepath.Join(base, dirPrefix+"1"), filepath.Join(base, dirPrefix+"2")
	for _, dir := range []string{dead, alive} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		lock, err := lockFile(filepath.Join(dir, "lock"), false)
		if err != nil {
			t.Fatal(err)
		}
		if dir == dead {
			lock.Close()
		} else {
			defer lock.Close()
		}
	}
	sweep(base)
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the dead run's folder: %v", err)
	}
	if _, err := os.Stat(alive); err != nil {
		t.Errorf("the living run's folder: %v", err)
	}
}
