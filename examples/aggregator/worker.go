package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/intlock/intlock/internal/opendb"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// workerEnv carries a workerConfig to a child process. The DSN may have a
// password in it: everybody can read the arguments of a process, but only its
// owner the environment.
const workerEnv = "INTLOCK_AGGREGATOR_WORKER"

type workerConfig struct {
	Number   int           `json:"number"`
	Run      string        `json:"run"`
	DSN      string        `json:"dsn"`
	TTL      time.Duration `json:"ttl"`
	Work     time.Duration `json:"work"`
	Parallel int           `json:"parallel"`
	NoLock   bool          `json:"nolock"`
}

// region is the INT_LOCK region of a run. A service has a fixed one, the same
// in all its instances; here it keeps two runs on one server apart.
func region(run string) string { return "aggregator-" + run }

// worker is one aggregator process. It takes messages from standard input and
// reports on standard output, until its input ends or it gets a SIGTERM.
type worker struct {
	workerConfig
	aggregator aggregator
	waiting    atomic.Int64 // goroutines that wait for a lock now

	mu  sync.Mutex // guards out
	out io.Writer
}

func workerMain(configText string) int {
	w := &worker{out: os.Stdout}
	err := json.Unmarshal([]byte(configText), &w.workerConfig)
	if err == nil {
		err = w.run(context.Background(), os.Stdin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (w *worker) run(ctx context.Context, input io.Reader) (err error) {
	// Ctrl-C and a closed terminal reach the whole process group. What they
	// mean is the coordinator's to decide: it closes our input. That happens
	// too if it is gone itself, and then a report to nobody must not kill us
	// before our locks are given back.
	signal.Ignore(os.Interrupt, syscall.SIGHUP, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()

	// A connection for each message under way, and one for the registry: it
	// renews the leases of them all in one statement.
	db, err := opendb.Open(ctx, w.DSN, w.Parallel+1)
	if err != nil {
		return err
	}
	defer db.Close()
	repo, err := repository.New(ctx, db,
		repository.WithRegion(region(w.Run)),
		repository.WithHolder(fmt.Sprintf("worker-%d/%d", w.Number, os.Getpid())))
	if err != nil {
		return err
	}
	defer repo.Close()
	locks, err := registry.New(repo,
		// What others wait for if this process dies. It need not be as long as
		// the work: leases are renewed.
		registry.WithTTL(w.TTL),
		registry.WithIdleBetweenTries(20*time.Millisecond), // the work is short, so is the wait
		registry.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
		// Every loss comes back as an error of ExecuteLocked, and is counted
		// there; a second word about it would be one too many.
		registry.WithOnLost(func(*registry.LostError) {}))
	if err != nil {
		return err
	}
	// Before the pool is closed, and whatever happened: what is not given back
	// now makes the others wait for the TTL.
	defer func() { err = errors.Join(err, locks.Close(context.WithoutCancel(ctx))) }()
	w.aggregator = aggregator{
		locks: locks, noLock: w.NoLock, worker: w.Number, work: w.Work,
		stall: func(held context.Context, d delivery) { w.stall(ctx, held, d) },
		store: &store{db: db, vendor: repo.Vendor(), run: w.Run},
	}

	var hands sync.WaitGroup
	deliveries := make(chan delivery)
	for range w.Parallel {
		hands.Go(func() {
			for d := range deliveries {
				w.handle(ctx, d)
			}
		})
	}
	hands.Go(func() { w.reportStatus(ctx) })
	w.report(report{Kind: isReady})
	w.receive(ctx, input, deliveries)
	stop() // ends what is still under way; nobody wants it any more
	close(deliveries)
	hands.Wait()
	return nil
}

// receive passes on what arrives until the input or ctx ends.
func (w *worker) receive(ctx context.Context, input io.Reader, to chan<- delivery) {
	lines := make(chan delivery)
	go func() { // not waited for: a read from standard input cannot be ended
		defer close(lines)
		scan := bufio.NewScanner(input)
		for scan.Scan() {
			var d delivery
			if err := json.Unmarshal(scan.Bytes(), &d); err != nil {
				fmt.Fprintln(os.Stderr, "bad delivery:", err)
				return
			}
			select {
			case lines <- d:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case d, ok := <-lines:
			if !ok {
				return
			}
			// The coordinator never sends more than there are hands, so this
			// waits for a moment only.
			select {
			case to <- d:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// handle has a message aggregated and acknowledges it, or gives it back.
func (w *worker) handle(ctx context.Context, d delivery) {
	start, inside := time.Now(), false
	done := report{Kind: isDone, ID: d.ID}
	w.waiting.Add(1)
	var err error
	done.Outcome, done.Handed, err = w.aggregator.handle(ctx, d, func() {
		done.Waited, inside = time.Since(start), true
		w.waiting.Add(-1)
	})
	if !inside {
		w.waiting.Add(-1)
	}
	switch {
	case err == nil:
		w.report(done)
	case ctx.Err() != nil:
		// The end of the run: unacknowledged, the message stays undelivered.
	default:
		// Whatever it was, the message goes to somebody again. If it had taken
		// effect (the commit went well, and the lock was lost only after it),
		// the next one finds a duplicate.
		failed := report{Kind: isFailed, ID: d.ID, Error: err.Error()}
		var lost *registry.LostError
		if errors.As(err, &lost) {
			failed.Lost = string(lost.Reason)
		}
		w.report(failed)
	}
}

func (w *worker) reportStatus(ctx context.Context) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.report(report{Kind: isStatus, Waiting: int(w.waiting.Load())})
		case <-ctx.Done():
			return
		}
	}
}

// report writes one line. If the coordinator is gone it cannot be written, and
// our input ends too.
func (w *worker) report(r report) {
	line, err := json.Marshal(r)
	if err != nil {
		return // a struct of plain fields
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.out.Write(append(line, '\n'))
}
