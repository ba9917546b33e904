package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// house is what a run needs: a database on each server, a file for SQLite, and
// two Redis servers, one that writes to the disk before it answers.
type house struct {
	dir     string
	vendors []string
	redis   []*exec.Cmd
}

const database = "intlock_bench"

// Redis servers, by the variable that has their address.
const (
	redisMemory  = "BENCH_REDIS"
	redisDurable = "BENCH_REDIS_DURABLE"
)

func newHouse(ctx context.Context) (*house, error) {
	dir, err := os.MkdirTemp("", "intlock-bench-")
	if err != nil {
		return nil, err
	}
	h := &house{dir: dir, vendors: []string{"sqlite"}}
	// The driver's usual settings for a file that several processes write to.
	os.Setenv("BENCH_SQLITE", "file:"+filepath.Join(dir, "locks.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	for _, vendor := range []string{"postgres", "mysql", "mariadb"} {
		dsn := os.Getenv("INTLOCK_TEST_" + strings.ToUpper(vendor) + "_DSN")
		if dsn == "" {
			fmt.Fprintf(os.Stderr, "no %s: run it with `make bench`\n", vendor)
			continue
		}
		own, err := fresh(ctx, vendor, dsn)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", vendor, err)
		}
		os.Setenv("BENCH_"+strings.ToUpper(vendor), own)
		h.vendors = append(h.vendors, vendor)
	}
	for _, vendor := range h.vendors {
		if err := prepare(ctx, vendor); err != nil {
			return nil, err
		}
	}
	for name, args := range map[string][]string{redisMemory: {"--appendonly", "no"}, redisDurable: {"--appendonly", "yes", "--appendfsync", "always"}} {
		if err := h.startRedis(name, args...); err != nil {
			fmt.Fprintf(os.Stderr, "no Redis: %v\n", err)
		}
	}
	return h, nil
}

// fresh makes the run's database anew, and returns its DSN.
func fresh(ctx context.Context, vendor, dsn string) (string, error) {
	driver := map[string]string{"postgres": "postgres", "mysql": "mysql", "mariadb": "mysql"}[vendor]
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return "", err
	}
	defer db.Close()
	for _, text := range []string{"DROP DATABASE IF EXISTS " + database, "CREATE DATABASE " + database} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return "", err
		}
	}
	if vendor == "postgres" {
		u, err := url.Parse(dsn)
		if err != nil {
			return "", err
		}
		u.Path = "/" + database
		return u.String(), nil
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", err
	}
	config.DBName = database
	return config.FormatDSN(), nil
}

func (h *house) startRedis(name string, args ...string) error {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := free.Addr().String()
	free.Close()
	_, port, _ := net.SplitHostPort(address)
	dir := filepath.Join(h.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	cmd := exec.Command(program, append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", ""}, args...)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	h.redis = append(h.redis, cmd)
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			os.Setenv(name, address)
			return nil
		}
		if time.Since(start) > 10*time.Second {
			return err
		}
	}
}

func (h *house) close() {
	for _, cmd := range h.redis {
		cmd.Process.Kill()
		cmd.Wait()
	}
	os.RemoveAll(h.dir)
}

// here are the kinds whose database is there.
func here(kinds []kind) []kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool {
		name := "BENCH_" + strings.ToUpper(k.vendor)
		if k.vendor == "redis durable" {
			name = redisDurable
		}
		return os.Getenv(name) == ""
	})
}
