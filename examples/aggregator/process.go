package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
)

// process is a worker as the coordinator sees it.
type process struct {
	number      int
	cmd         *exec.Cmd
	in          io.WriteCloser
	ready       bool
	outstanding map[int]delivery // sent and not acknowledged, by id
	waiting     int              // its last status
	asked       bool             // to end: its exit is no surprise
}

// startProcess starts this binary once more, as a worker. What it reports and
// logs goes to reports, and at last that it has ended.
func startProcess(c workerConfig, reports chan<- report) (*process, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	p := &process{number: c.Number, cmd: exec.Command(binary), outstanding: make(map[int]delivery)}
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(config))
	in, errIn := p.cmd.StdinPipe()
	out, errOut := p.cmd.StdoutPipe()
	log, errLog := p.cmd.StderrPipe()
	if err := errors.Join(errIn, errOut, errLog, p.cmd.Start()); err != nil {
		return nil, err
	}
	p.in = in

	var readers sync.WaitGroup
	readers.Go(func() {
		scan := bufio.NewScanner(out)
		for scan.Scan() {
			r := report{from: p}
			if err := json.Unmarshal(scan.Bytes(), &r); err != nil {
				continue // the last words of a killed process
			}
			reports <- r
		}
	})
	readers.Go(func() {
		scan := bufio.NewScanner(log)
		for scan.Scan() {
			reports <- report{Kind: isLog, Error: scan.Text(), from: p}
		}
	})
	go func() { // ends with the report that the coordinator always waits for
		readers.Wait()
		reports <- report{Kind: isExit, Error: exitText(p.cmd.Wait()), from: p}
	}()
	return p, nil
}

func exitText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// send delivers a message. An error means that the process is gone or going;
// its exit report says so, and what is outstanding is delivered again.
func (p *process) send(d delivery) {
	p.outstanding[d.ID] = d
	line, err := json.Marshal(d)
	if err != nil {
		return // a struct of plain fields
	}
	_, _ = p.in.Write(append(line, '\n'))
}

// finish lets the worker end: it gives back its locks and exits.
func (p *process) finish() {
	p.asked = true
	_ = p.in.Close()
}

// kill is SIGKILL: no deferred function runs, no lock is given back.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

func (p *process) pid() int { return p.cmd.Process.Pid }
