//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/intlock/intlock/internal/testdb/dbserver"
)

// Debian's stable suites have no MySQL, only MariaDB. Its unstable suite has,
// together with the C library it needs; both are unpacked side by side into
// the cache and run from there. Nothing is installed, so this needs no root.

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

var debianURI = regexp.MustCompile(`(?m)^'(\S+/debian/)dists/`)

// debianMirror is the one this machine's apt already uses. A fresh container
// has no package lists yet, so it is read from what an update would fetch.
func debianMirror(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "apt-get", "--print-uris", "update").Output()
	if err != nil {
		return ""
	}
	if part := debianURI.FindSubmatch(out); part != nil {
		return string(part[1])
	}
	return ""
}

// unpackMySQL brings MySQL into the cache, whole or not at all.
func (b *bringer) unpackMySQL(ctx context.Context) error {
	lock, err := dbserver.LockFile(filepath.Join(b.house.Cache, "mysql.lock"), true)
	if err != nil {
		return err
	}
	defer lock.Close()
	if dbserver.HasMySQL(dbserver.MySQLTree(b.house.Cache)) { // a run beside this one was quicker
		return nil
	}
	say("unpacking MySQL from Debian's unstable suite into %s, once", b.house.Cache)
	temp, err := os.MkdirTemp(b.house.Cache, ".mysql-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	config, err := aptConfig(temp, debianMirror(ctx))
	if err != nil {
		return err
	}
	env := []string{"APT_CONFIG=" + config}
	if err := apt(ctx, env, "update", "-qq"); err != nil {
		return err
	}
	if err := apt(ctx, env, "install", "-y", "-qq", "--download-only", "mysql-server-core"); err != nil {
		return err
	}
	full := filepath.Join(temp, "full")
	debs, _ := filepath.Glob(filepath.Join(temp, "cache/archives/*.deb"))
	for _, deb := range debs {
		if out, err := exec.CommandContext(ctx, "dpkg", "-x", deb, full).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w\n%s", filepath.Base(deb), errors.Join(ctx.Err(), err), out)
		}
	}
	tree := filepath.Join(temp, "tree")
	if err := serverOnly(full, tree); err != nil {
		return err
	}
	if !dbserver.HasMySQL(tree) {
		return fmt.Errorf("mysql-server-core of %s does not look as expected: no server, loader or libraries", debianMirror(ctx))
	}
	if err := os.Chmod(tree, 0o755); err != nil {
		return err
	}
	return os.Rename(tree, dbserver.MySQLTree(b.house.Cache))
}

// aptConfig gives apt-get a world of its own below dir, in which nothing is
// installed: it then downloads every dependency, down to the C library.
func aptConfig(dir, mirror string) (string, error) {
	arch, err := exec.Command("dpkg", "--print-architecture").Output()
	if err != nil {
		return "", err
	}
	for _, sub := range []string{"lists/partial", "cache/archives/partial", "state"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return "", err
		}
	}
	config := filepath.Join(dir, "apt.conf")
	for name, text := range map[string]string{
		filepath.Join(dir, "status"):       "",
		filepath.Join(dir, "sources.list"): fmt.Sprintf("deb [signed-by=%s] %s sid main\n", keyring, mirror),
		config: fmt.Sprintf(`
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State "%[1]s/state";
Dir::State::Lists "%[1]s/lists";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache";
APT::Install-Recommends "false";
APT::Architecture "%[2]s";
APT::Architectures { "%[2]s"; };
APT::Sandbox::User "";
Acquire::Languages "none";
`, dir, strings.TrimSpace(string(arch))),
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return config, nil
}

// serverOnly takes from the packages what mysqld needs: every run links or
// copies these files, and Perl came along too.
func serverOnly(full, tree string) error {
	if err := os.MkdirAll(filepath.Join(tree, "usr/sbin"), 0o755); err != nil {
		return err
	}
	var parts []string
	for _, pattern := range []string{"usr/lib*/ld-linux-*", "usr/lib/*-linux-gnu/*.so*", "usr/lib/mysql", "usr/share/mysql", "usr/sbin/mysqld"} {
		found, _ := filepath.Glob(filepath.Join(full, pattern))
		parts = append(parts, found...)
	}
	for _, part := range parts {
		target := tree + strings.TrimPrefix(part, full)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.Rename(part, target); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
