//go:build unix

package dbserver

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

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

func TestKeepIsWholeOrNothing(t *testing.T) {
	from, cache := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(from, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "sub", "file"), []byte("data"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("sub/file", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	template := filepath.Join(cache, "data", "x")
	// A test's process may have any umask; a server's user must read it all.
	defer syscall.Umask(syscall.Umask(0o077))
	for range 2 { // the second finds the first's template, as a parallel run does
		if err := keep(from, template); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(template, "link")); err != nil || string(text) != "data" {
		t.Errorf("%s, %v", text, err)
	}
	for name, want := range map[string]os.FileMode{"sub": 0o755, "sub/file": 0o640} {
		if info, err := os.Stat(filepath.Join(template, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
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
		lock, err := LockFile(filepath.Join(dir, "lock"), false)
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
