//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/testdb/dbserver"
	"github.com/intlock/intlock/internal/vendor"
)

// compose runs some of the services of the module's compose.yaml, under a
// project name of its own, so that runs do not meet.
type compose struct {
	vendors []string
	file    string
	project string
	ports   map[string]int
}

func newCompose(ctx context.Context, vendors []string) (*compose, error) {
	if !has("docker") {
		return nil, errors.New("no docker command")
	}
	for _, args := range [][]string{{"info"}, {"compose", "version"}} {
		if err := exec.CommandContext(ctx, "docker", args...).Run(); err != nil {
			return nil, fmt.Errorf("docker %s: %w", strings.Join(args, " "), err)
		}
	}
	file, err := composeFile()
	if err != nil {
		return nil, err
	}
	c := &compose{vendors: vendors, file: file, project: fmt.Sprintf("intlock-test-%d", os.Getpid()), ports: map[string]int{}}
	for _, name := range vendors {
		if c.ports[name], err = dbserver.FreePort(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// composeFile is beside the module's go.mod, here or further up.
func composeFile() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		file := filepath.Join(dir, "compose.yaml")
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no compose.yaml here or further up")
		}
		dir = filepath.Dir(dir)
	}
}

func (c *compose) up(ctx context.Context) error {
	say("starting %s with docker compose", strings.Join(c.vendors, ", "))
	// --wait returns when the health checks have passed.
	return c.run(ctx, append([]string{"up", "--detach", "--wait", "--quiet-pull"}, c.vendors...)...)
}

func (c *compose) down() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.run(ctx, "down", "--volumes", "--timeout", "0"); err != nil {
		say("%v", err)
	}
}

func (c *compose) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "docker", append([]string{"compose", "--file", c.file, "--project-name", c.project}, args...)...)
	cmd.Env = os.Environ()
	for name, port := range c.ports {
		cmd.Env = append(cmd.Env, fmt.Sprintf("INTLOCK_%s_PORT=%d", strings.ToUpper(name), port))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C comes through ctx
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("docker compose %s: %w\n%s", args[0], errors.Join(ctx.Err(), err), bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// env has no log files: they are inside the containers.
func (c *compose) env() []string {
	var env []string
	for _, name := range c.vendors {
		dsn := dbserver.MySQLDSN(c.ports[name])
		if name == vendor.Postgres {
			dsn = dbserver.PostgresDSN(c.ports[name])
		}
		env = append(env, testdb.DSNEnv(name)+"="+dsn)
	}
	return env
}
