//go:build unix

package dbserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// fill makes dir/data: a copy of the template that an earlier run left in the
// cache, or the server's own initialisation, which takes seconds and becomes
// the template.
func (h *House) fill(ctx context.Context, p *Plan, dir string, as *syscall.Credential) error {
	// Another version or another way to initialise needs another template.
	key := sha256.Sum256([]byte(strings.Join(append(p.init(""), p.Version), "\x00")))
	template := filepath.Join(h.Cache, "data", fmt.Sprintf("%s-%s-%x", p.Vendor, p.Version, key[:4]))
	if _, err := os.Stat(template); err == nil {
		return copyTree(template, data(dir), as, false)
	}

	h.say("%s %s: initialising its data, once", p.Vendor, p.Version)
	cmd := command(ctx, p.init(dir), dir, as)
	// A script that starts the server: end the whole group.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := h.Start(cmd, syscall.SIGKILL)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("initialise %s: %w\n%s", p.Vendor, errors.Join(ctx.Err(), err), out.Bytes())
	}
	if err := keep(data(dir), template); err != nil {
		h.say("%s: its data is not kept for the next run: %v", p.Vendor, err)
	}
	return nil
}

// keep copies and then renames, so that an interrupted or parallel run never
// leaves half a template.
func keep(from, template string) error {
	parent := filepath.Dir(template)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	half := filepath.Join(temp, "data")
	if err := copyTree(from, half, nil, false); err != nil {
		return err
	}
	if err := os.Rename(half, template); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

// copyTree copies folders, files and symbolic links, gives them to a user,
// and keeps their permissions, whatever our umask says. With link it makes hard links where it can,
// which suits files that nobody writes to.
func copyTree(from, to string, as *syscall.Credential, link bool) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		info, err := entry.Info()
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir():
			if err = os.Mkdir(target, 0o700); err == nil {
				err = os.Chmod(target, info.Mode().Perm())
			}
		case entry.Type() == fs.ModeSymlink:
			var name string
			if name, err = os.Readlink(path); err == nil {
				err = os.Symlink(name, target)
			}
		case entry.Type().IsRegular():
			if link && os.Link(path, target) == nil {
				return nil
			}
			err = copyFile(path, target, info.Mode().Perm())
		default:
			return nil // a socket that somebody left
		}
		if err != nil {
			return err
		}
		return own(target, as)
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in) // in the kernel, on Linux
	return errors.Join(err, out.Chmod(mode), out.Close())
}
