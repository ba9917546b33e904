//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/testdb/dbserver"
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

// What only Docker has cannot be broken from here, and the command is told.
func TestWithoutPrivate(t *testing.T) {
	b := &bringer{house: &dbserver.House{Cache: t.TempDir()}}
	if got := b.withoutPrivate(t.Context(), "mysql"); got != nil {
		t.Errorf("without Docker: %q", got)
	}
	b.compose = &compose{vendors: []string{"oracle"}} // on no machine
	for asked, want := range map[string]string{"": "oracle", "mysql": "oracle,mysql"} {
		if got := b.withoutPrivate(t.Context(), asked); len(got) != 1 || got[0] != testdb.SkipPrivateEnv+"="+want {
			t.Errorf("asked to leave out %q: %q", asked, got)
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
