package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/intlock/intlock/internal/opendb"
	"github.com/intlock/intlock/schema"
	"github.com/jmoiron/sqlx"
)

// bank is the database, the processes of the service, and the load.
type bank struct {
	settings
	temporary string // the folder of the SQLite file, if it is ours
	dsn       string
	db        *sqlx.DB
	table     string
	services  []*process
	client    *http.Client

	mu      sync.Mutex // guards the fields below
	counts  counts
	refused []time.Duration // how long a refused request took
}

type process struct {
	cmd     *exec.Cmd
	in      io.Closer
	address string
}

func openBank(ctx context.Context, s settings) (opened *bank, err error) {
	b := &bank{settings: s, dsn: s.db, table: "LOAN_" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.dsn == "" {
		if b.temporary, err = os.MkdirTemp("", "intlock-loan-"); err != nil {
			return nil, err
		}
		b.dsn = filepath.Join(b.temporary, "loan.db")
	}
	if b.db, err = opendb.Open(ctx, b.dsn, 2); err != nil {
		return nil, err
	}
	if err := schema.Apply(ctx, b.db, schema.DefaultPrefix); err != nil {
		return nil, err
	}
	_, err = b.db.ExecContext(ctx, "CREATE TABLE "+b.table+" (ID CHAR(36) PRIMARY KEY, USER_NAME VARCHAR(50) NOT NULL, CLASS VARCHAR(50) NOT NULL)")
	if err == nil { // or each look would read the whole table
		_, err = b.db.ExecContext(ctx, "CREATE INDEX "+b.table+"_USER ON "+b.table+" (USER_NAME, CLASS)")
	}
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(config{DSN: b.dsn, Table: b.table, Work: s.work, NoLock: s.noLock})
	if err != nil {
		return nil, err
	}
	for range s.processes {
		p, err := startProcess(string(text))
		if err != nil {
			return nil, err
		}
		b.services = append(b.services, p)
	}
	connections := s.customers * s.duplicates
	b.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		MaxIdleConnsPerHost: connections, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext}}
	return b, nil
}

func startProcess(config string) (*process, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(binary)}
	p.cmd.Env = append(os.Environ(), serviceEnv+"="+config)
	p.cmd.Stderr = os.Stderr
	in, errIn := p.cmd.StdinPipe()
	out, errOut := p.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, p.cmd.Start()); err != nil {
		return nil, err
	}
	p.in = in
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		in.Close()
		return nil, fmt.Errorf("the service does not start: %w", errors.Join(err, p.cmd.Wait()))
	}
	p.address = strings.TrimSpace(line)
	return p, nil
}

// close ends the processes, and removes what was made.
func (b *bank) close() {
	for _, p := range b.services {
		p.in.Close()
		p.cmd.Wait()
	}
	if b.db != nil {
		b.db.Exec("DROP TABLE " + b.table)
		b.db.Close()
	}
	if b.temporary != "" {
		os.RemoveAll(b.temporary)
	}
}

// run sends the load, and looks at what has become of it.
func (b *bank) run(ctx context.Context) (*summary, error) {
	begin := time.Now()
	applications := make(chan [2]string)
	var customers sync.WaitGroup
	failed := make(chan error, b.customers)
	for range b.customers {
		customers.Go(func() {
			for a := range applications {
				if err := b.click(ctx, a[0], a[1]); err != nil {
					failed <- err
					for range applications { // let the others end
					}
					return
				}
			}
		})
	}
	for class := range b.classes {
		for user := range b.users {
			applications <- [2]string{fmt.Sprint("user-", user), fmt.Sprint("class-", class)}
		}
	}
	close(applications)
	customers.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return b.summary(ctx, time.Since(begin))
	}
}

// click sends one application as often as an impatient customer does, all at once
// and to any of the processes. He tries again only when the service says that it is
// not available.
func (b *bank) click(ctx context.Context, user, class string) error {
	errs := make(chan error, b.duplicates)
	for i := range b.duplicates {
		go func() { errs <- b.send(ctx, b.services[i%len(b.services)].address, user, class) }()
	}
	var all error
	for range b.duplicates {
		all = errors.Join(all, <-errs)
	}
	return all
}

func (b *bank) send(ctx context.Context, address, user, class string) error {
	target := "http://" + address + "/loans?" + url.Values{"user": {user}, "class": {class}}.Encode()
	for {
		begin := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
		if err != nil {
			return err
		}
		resp, err := b.client.Do(req)
		if err != nil {
			return err
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		took := time.Since(begin)
		b.mu.Lock()
		switch resp.StatusCode {
		case http.StatusCreated:
			b.counts.Made++
		case http.StatusOK:
			b.counts.Found++
		case http.StatusConflict:
			b.counts.Refused++
			b.refused = append(b.refused, took)
		case http.StatusServiceUnavailable:
			b.counts.Unavailable++
		default:
			err = fmt.Errorf("the service answers %s", resp.Status)
		}
		b.mu.Unlock()
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// summary looks at the loans.
func (b *bank) summary(ctx context.Context, took time.Duration) (*summary, error) {
	s := &summary{Lock: !b.noLock, Processes: b.processes, Requests: b.users * b.classes * b.duplicates, Wanted: b.users * b.classes, Answers: b.counts, Took: took}
	var perUser []int
	if err := b.db.SelectContext(ctx, &perUser, "SELECT COUNT(*) FROM "+b.table+" GROUP BY USER_NAME, CLASS"); err != nil {
		return nil, err
	}
	for _, n := range perUser {
		s.Loans += n
		if n > 1 {
			s.Several++
		}
	}
	s.None = s.Wanted - len(perUser)
	s.Right = s.Several == 0 && s.None == 0
	if len(b.refused) > 0 {
		slices.Sort(b.refused)
		s.RefusedMedian, s.Refused99 = b.refused[len(b.refused)/2], b.refused[len(b.refused)*99/100]
	}
	return s, nil
}
