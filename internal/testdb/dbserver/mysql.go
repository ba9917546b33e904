//go:build unix

package dbserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	_ "github.com/go-sql-driver/mysql" // to ask whether it is up
)

// MySQLDSN is for a server on this machine, MySQL or MariaDB, whose root has no
// password.
func MySQLDSN(port int) string { return fmt.Sprintf("root@tcp(127.0.0.1:%d)/", port) }

// inBoth are the settings MySQL and MariaDB share. A durable server keeps its
// defaults, sizes included: with a small redo log, who writes much is made to wait
// until pages are on the disk, and all others with it.
func inBoth(dir string, port int, durable bool) []string {
	argv := []string{
		"--datadir=" + data(dir),
		"--port=" + strconv.Itoa(port),
		"--bind-address=127.0.0.1",
		"--socket=" + filepath.Join(dir, "sock"),
		"--pid-file=" + filepath.Join(dir, "pid"),
		"--log-error=" + filepath.Join(dir, logName),
		"--max-connections=400",
		// testdb's LogMark finds deadlocks in the log.
		"--innodb-print-all-deadlocks=ON",
	}
	if !durable {
		argv = append(argv, "--innodb-flush-log-at-trx-commit=2", "--innodb-doublewrite=OFF", "--skip-log-bin", "--innodb-buffer-pool-size=64M")
	}
	return argv
}

// inBothSignals: neither has a way between a clean end and none at all.
var inBothSignals = map[StopMode]syscall.Signal{Fast: syscall.SIGTERM, Immediate: syscall.SIGKILL}

func findMariaDB(ctx context.Context) *Plan {
	server, install := program("mariadbd"), program("mariadb-install-db")
	if server == "" || install == "" || program("my_print_defaults") == "" { // install calls it
		return nil
	}
	return &Plan{
		Version: versionNumber.FindString(banner(ctx, server)),
		users:   []string{"mysql"},
		driver:  "mysql",
		dsn:     MySQLDSN,
		init: func(dir string) []string {
			return []string{install, "--no-defaults", "--datadir=" + data(dir), "--skip-test-db",
				"--auth-root-authentication-method=normal", "--innodb-log-file-size=16M"}
		},
		serve: func(dir string, port int, durable bool) []string {
			argv := append([]string{server, "--no-defaults",
				// What Debian's packages and the Docker image set.
				"--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci"},
				inBoth(dir, port, durable)...)
			if !durable {
				argv = append(argv, "--innodb-log-file-size=16M")
			}
			return argv
		},
		signals: inBothSignals,
	}
}

// findMySQL takes a mysqld of the system if it really is MySQL (MariaDB's
// packages bring a program of that name too), or else the one in the cache.
func findMySQL(ctx context.Context, cache string) *Plan {
	p := &Plan{users: []string{"mysql"}, driver: "mysql", dsn: MySQLDSN, signals: inBothSignals}
	server := func(string) []string { return nil }
	if path := program("mysqld"); path != "" && isMySQL8(banner(ctx, path)) {
		p.Version = versionNumber.FindString(afterVer(banner(ctx, path)))
		server = func(string) []string { return []string{path, "--no-defaults"} }
	} else if argv := throughLoader(MySQLTree(cache)); argv != nil {
		p.Version = versionNumber.FindString(afterVer(banner(ctx, argv...)))
		server = func(dir string) []string {
			tree := filepath.Join(dir, "tree")
			return append(throughLoader(tree), "--no-defaults", "--basedir="+tree+"/usr", "--lc-messages-dir="+tree+"/usr/share/mysql")
		}
		// The cache is often below a home that the server's user cannot
		// enter, so the files come to it.
		p.stage = func(dir string) error { return copyTree(MySQLTree(cache), filepath.Join(dir, "tree"), nil, true) }
	} else {
		return nil
	}
	p.init = func(dir string) []string {
		return append(server(dir), "--initialize-insecure", "--datadir="+data(dir), "--innodb-redo-log-capacity=8M")
	}
	p.serve = func(dir string, port int, durable bool) []string {
		argv := append(server(dir), inBoth(dir, port, durable)...)
		// MySQL 9 does not start without a decision on secure-file-priv, and
		// prints the deadlocks as notes, which verbosity 3 includes.
		argv = append(argv, "--mysqlx=OFF", "--secure-file-priv=NULL", "--log-error-verbosity=3")
		if !durable {
			argv = append(argv, "--innodb-redo-log-capacity=32M")
		}
		return argv
	}
	return p
}

// afterVer cuts the path off a banner; it may have numbers of its own.
func afterVer(banner string) string {
	_, version, _ := strings.Cut(banner, " Ver ")
	return version
}

func isMySQL8(banner string) bool {
	if strings.Contains(banner, "MariaDB") {
		return false
	}
	major, _, _ := strings.Cut(versionNumber.FindString(afterVer(banner)), ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 8
}

// MySQLTree is where an unpacked MySQL lies in the cache.
func MySQLTree(cache string) string { return filepath.Join(cache, "mysql") }

// HasMySQL is true for a folder with a server that can run from there.
func HasMySQL(tree string) bool { return throughLoader(tree) != nil }

// throughLoader runs an unpacked mysqld with the C library that came with it:
// the machine's own is older.
func throughLoader(tree string) []string {
	loaders, _ := filepath.Glob(filepath.Join(tree, "usr/lib*/ld-linux-*.so.*"))
	libraries, _ := filepath.Glob(filepath.Join(tree, "usr/lib/*-linux-gnu"))
	server := filepath.Join(tree, "usr/sbin/mysqld")
	if _, err := os.Stat(server); err != nil || len(loaders) == 0 || len(libraries) == 0 {
		return nil
	}
	return []string{loaders[0], "--library-path", libraries[0], server}
}
