package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// childEnv makes the program a child of itself: "<what> <kind> <argument>...".
const childEnv = "INTLOCK_BENCH_CHILD"

type process struct {
	cmd  *exec.Cmd
	in   *bufio.Writer
	out  *bufio.Scanner
	stop func()
}

func spawn(what string, k kind, args ...string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(append([]string{what, k.id()}, args...), "\t"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	return &process{cmd: cmd, in: bufio.NewWriter(in), out: lines, stop: func() { cmd.Process.Kill(); cmd.Wait() }}, nil
}

func (k kind) id() string { return k.vendor + "/" + k.name }

func (p *process) line() (string, error) {
	if !p.out.Scan() {
		return "", fmt.Errorf("a child ended early: %v", p.out.Err())
	}
	return p.out.Text(), nil
}

func (p *process) say(text string) {
	fmt.Fprintln(p.in, text)
	p.in.Flush()
}

func child(spec string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench child:", strings.ReplaceAll(spec, "\t", " "), err)
			os.Exit(1)
		}
	}
	args := strings.Split(spec, "\t")
	var k kind
	for _, one := range allKinds() {
		if one.id() == args[1] {
			k = one
		}
	}
	if k.open == nil {
		fail(fmt.Errorf("no kind %q", args[1]))
	}
	ctx := context.Background()
	l, err := k.open(ctx)
	fail(err)
	switch args[0] {
	case "holder":
		lines := bufio.NewScanner(os.Stdin)
		for {
			unlock, err := l.lock(ctx, args[2])
			fail(err)
			fmt.Println("holding")
			if !lines.Scan() {
				return
			}
			time.Sleep(20*time.Millisecond + rand.N(40*time.Millisecond))
			begin := time.Now().UnixNano()
			fail(unlock())
			fmt.Println(begin, time.Now().UnixNano())
			if !lines.Scan() { // when the other has it
				return
			}
		}
	case "crowd":
		goroutines, _ := strconv.Atoi(args[3])
		work, _ := time.ParseDuration(args[4])
		length, _ := time.ParseDuration(args[5])
		counts := make([]int, goroutines)
		fmt.Println("ready")
		bufio.NewScanner(os.Stdin).Scan()
		end := time.Now().Add(length)
		waiting, cancel := context.WithDeadline(ctx, end.Add(time.Second))
		defer cancel()
		var all sync.WaitGroup
		for i := range goroutines {
			all.Go(func() {
				for time.Now().Before(end) {
					unlock, err := l.lock(waiting, args[2])
					if err != nil {
						return // time was up
					}
					if work > 0 {
						time.Sleep(work)
					}
					if time.Now().Before(end) {
						counts[i]++
					}
					fail(unlock())
				}
			})
		}
		all.Wait()
		text, err := json.Marshal(counts)
		fail(err)
		fmt.Println(string(text))
	}
}
