//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/intlock/intlock/internal/testdb/dbserver"
)

// aptInstall installs the servers' packages. A run beside this one waits, and
// then finds everything there.
func (b *bringer) aptInstall(ctx context.Context, names []string) error {
	lock, err := dbserver.LockFile(filepath.Join(b.house.Cache, "apt.lock"), true)
	if err != nil {
		return err
	}
	defer lock.Close()
	var list []string
	for _, name := range names {
		if !has(name) && dbserver.Find(ctx, name, b.house.Cache) == nil {
			list = append(list, packages[name]...)
		}
	}
	if len(list) == 0 {
		return nil
	}
	say("installing %s with apt-get, once", strings.Join(list, ", "))

	install := append([]string{"install", "-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"}, list...)
	download := append(install, "--download-only")
	if !haveLists() || apt(ctx, nil, download...) != nil {
		if err := apt(ctx, nil, "update", "-qq"); err != nil {
			return err
		}
		if err := apt(ctx, nil, download...); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// Everything is downloaded. From here an interruption waits, so that the
	// system's packages stay whole.
	restore, err := forbidServices("/usr/sbin/policy-rc.d")
	if err != nil {
		return err
	}
	return errors.Join(apt(context.WithoutCancel(ctx), nil, install...), restore())
}

// haveLists is false on a fresh container, where apt-get knows no package.
func haveLists() bool {
	lists, _ := filepath.Glob("/var/lib/apt/lists/*_Packages*")
	return len(lists) > 0
}

// apt runs apt-get and shows its output only if it fails: the caller has said
// in one line what happens.
func apt(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(append(os.Environ(), "DEBIAN_FRONTEND=noninteractive"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C comes through ctx
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", args[0], errors.Join(ctx.Err(), err), bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// forbidServices keeps packages from starting the services they bring, the
// way Debian provides for it, and returns how to undo that.
func forbidServices(policy string) (restore func() error, err error) {
	before := policy + ".before-intlock"
	// If an earlier run was killed in between, the original is still there.
	if _, err := os.Lstat(before); errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(policy, before); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if err := os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
		return nil, err
	}
	return func() error {
		err := os.Rename(before, policy)
		if errors.Is(err, fs.ErrNotExist) {
			return os.Remove(policy)
		}
		return err
	}, nil
}
