//go:build unix

package dbserver

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	_ "github.com/lib/pq" // to ask whether it is up
)

// PostgresDSN is for a server on this machine that trusts everybody.
func PostgresDSN(port int) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
}

func findPostgres(ctx context.Context) *Plan {
	bin := postgresBin()
	if bin == "" {
		return nil
	}
	server := filepath.Join(bin, "postgres")
	return &Plan{
		Version: versionNumber.FindString(banner(ctx, server)),
		users:   []string{"postgres"},
		driver:  "postgres",
		dsn:     PostgresDSN,
		init: func(dir string) []string {
			return []string{filepath.Join(bin, "initdb"), "-D", data(dir), "-U", "postgres",
				"--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"}
		},
		serve: func(dir string, port int, durable bool) []string {
			argv := []string{server, "-D", data(dir), "-p", strconv.Itoa(port), "-k", dir,
				"-c", "listen_addresses=127.0.0.1",
				"-c", "max_connections=400",
				// testdb's LogMark reads this prefix.
				"-c", "log_line_prefix=%m [%p] %q%d ",
				"-c", "log_timezone=UTC",
			}
			if !durable {
				// Only a crash of the machine could tell the difference, and
				// these files do not outlive the run.
				argv = append(argv, "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")
			}
			return argv
		},
		signals: map[StopMode]syscall.Signal{Fast: syscall.SIGINT, Immediate: syscall.SIGQUIT},
	}
}

// postgresBin is the newest server's folder. Debian keeps each version in a
// folder of its own, outside PATH.
func postgresBin() string {
	newest, best := "", 0
	servers, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	for _, server := range servers {
		bin := filepath.Dir(server)
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(bin))); err == nil && n > best {
			newest, best = bin, n
		}
	}
	if newest != "" {
		return newest
	}
	server, err := exec.LookPath("postgres")
	if err != nil {
		return ""
	}
	if server, err = filepath.EvalSymlinks(server); err != nil {
		return ""
	}
	return filepath.Dir(server)
}
