//go:build unix

package dbserver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

	"github.com/intlock/intlock/internal/vendor"
)

// Plan is how one vendor's server is made and run in a folder of its own. The
// functions get that folder; the data goes into "data" below it.
type Plan struct {
	Vendor, Version string

	users   []string // system users to run as when we are root, best first
	driver  string
	dsn     func(port int) string
	stage   func(dir string) error // bring needed files into the folder, may be nil
	init    func(dir string) []string
	serve   func(dir string, port int, durable bool) []string
	signals map[StopMode]syscall.Signal
}

// Find looks for a vendor's server on this machine: among its programs, or,
// for MySQL, in the cache. It is nil if there is none.
func Find(ctx context.Context, name, cache string) *Plan {
	var p *Plan
	switch name {
	case vendor.Postgres:
		p = findPostgres(ctx)
	case vendor.MariaDB:
		p = findMariaDB(ctx)
	case vendor.MySQL:
		p = findMySQL(ctx, cache)
	}
	if p != nil {
		p.Vendor = name
	}
	return p
}

// data is the folder a server keeps its files in.
func data(dir string) string { return filepath.Join(dir, "data") }

// program looks in PATH, and then where distributions keep servers, which is
// not in everybody's PATH.
func program(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin"} {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

var versionNumber = regexp.MustCompile(`\d+(\.\d+)+`)

// banner is what a program answers to --version.
func banner(ctx context.Context, argv ...string) string {
	out, err := exec.CommandContext(ctx, argv[0], append(argv[1:], "--version")...).Output()
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(out))
}

// credential is the user a server runs as: servers refuse to run as root. Nil
// means as we are. A user that the package made is best; "nobody" is on every
// machine.
func credential(users []string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range append(users, "nobody") {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID == nil && errGID == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("no unprivileged user to run a server as: none of %v, nobody", users)
}

func own(path string, as *syscall.Credential) error {
	if as == nil {
		return nil
	}
	return os.Lchown(path, int(as.Uid), int(as.Gid))
}
