package check

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/intlock/intlock/fencing"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// now is the machine's monotonic clock, which all processes read alike.
func now() int64 {
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&t)), 0) // CLOCK_MONOTONIC
	return t.Nano()
}

// ttl is short, so that much can expire.
const ttl = time.Second

// epoch is how long a key is in use: histories of one key must not grow without bound.
const epoch = 5 * time.Second

// logger writes records, each by one system call: a kill leaves whole lines.
type logger struct {
	mu   sync.Mutex
	file *os.File
}

func (l *logger) add(r Record) {
	line, err := json.Marshal(r)
	fatal(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.file.Write(append(line, '\n'))
	fatal(err)
}

func fatal(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	fatal(err)
	return n
}

// recorder notes what the database has answered.
type recorder struct {
	*repository.DefaultLockRepository
	log *logger
}

func (r recorder) Acquire(ctx context.Context, req repository.Request) (repository.Outcome, error) {
	call := now()
	out, err := r.DefaultLockRepository.Acquire(ctx, req)
	r.acquired(call, req, out, err)
	return out, err
}

func (r recorder) AcquireBatch(ctx context.Context, reqs []repository.Request) ([]repository.Answer[repository.Outcome], error) {
	call := now()
	answers, err := r.DefaultLockRepository.AcquireBatch(ctx, reqs)
	for i, a := range answers {
		r.acquired(call, reqs[i], a.Value, a.Err)
	}
	return answers, err
}

func (r recorder) acquired(call int64, req repository.Request, out repository.Outcome, err error) {
	switch {
	case err != nil: // it may have the lease all the same, and be told so the next time
		r.log.add(Record{Kind: Asked, Key: req.Key, Attempt: req.Attempt, Call: call})
	case out.Acquired:
		r.log.add(Record{Kind: Lease, Key: req.Key, Attempt: req.Attempt, Token: out.Token, Call: call, Return: now()})
	case out.ClientID != "":
		r.log.add(Record{Kind: Refused, Key: req.Key, Holder: out.ClientID, Call: call, Return: now()})
	}
}

func (r recorder) Delete(ctx context.Context, lease repository.Lease) (bool, error) {
	call := now()
	deleted, err := r.DefaultLockRepository.Delete(ctx, lease)
	r.deleted(call, lease, deleted, err)
	return deleted, err
}

func (r recorder) DeleteBatch(ctx context.Context, leases []repository.Lease) ([]repository.Answer[bool], error) {
	call := now()
	answers, err := r.DefaultLockRepository.DeleteBatch(ctx, leases)
	for i, a := range answers {
		r.deleted(call, leases[i], a.Value, a.Err)
	}
	return answers, err
}

func (r recorder) deleted(call int64, lease repository.Lease, deleted bool, err error) {
	if err == nil && deleted {
		r.log.add(Record{Kind: Deleted, Key: lease.Key, Attempt: lease.Attempt, Call: call, Return: now()})
	}
}

// workerChild is a process that locks, believes, writes and unlocks, and records it.
func workerChild() {
	ctx := context.Background()
	db, err := sql.Open(os.Getenv("CHECK_DRIVER"), os.Getenv("CHECK_DSN"))
	fatal(err)
	db.SetMaxOpenConns(number("CHECK_POOL"))
	repo := try(func() (*repository.DefaultLockRepository, error) {
		return repository.New(ctx, db, repository.WithTokens())
	})
	file, err := os.OpenFile(os.Getenv("CHECK_LOG"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	fatal(err)
	log := &logger{file: file}
	log.add(Record{Kind: Client, Key: repo.ClientID()})
	locks, err := registry.New(recorder{repo, log}, registry.WithTTL(ttl), registry.WithLogger(slog.New(slog.DiscardHandler)))
	fatal(err)
	guard := try(func() (*fencing.Guard, error) { return fencing.NewGuard(ctx, db) })
	seed, keys := uint64(number("CHECK_SEED")), number("CHECK_KEYS")
	for g := range number("CHECK_GOROUTINES") {
		go func() {
			w := &worker{log: log, locks: locks, db: db, guard: guard, random: rand.New(rand.NewPCG(seed, uint64(g))), id: int64(g) << 32}
			for {
				w.once(ctx, keys)
			}
		}()
	}
	select {}
}

// try makes what needs a database, which may be away.
func try[T any](make func() (T, error)) T {
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		made, err := make()
		if err == nil || time.Since(begin) > 30*time.Second {
			fatal(err)
			return made
		}
	}
}

type worker struct {
	log    *logger
	locks  *registry.JdbcLockRegistry
	db     *sql.DB
	guard  *fencing.Guard
	random *rand.Rand
	id     int64
}

// once takes a lock, or does not get it.
func (w *worker) once(ctx context.Context, keys int) {
	w.id++
	key := registry.PathFor(fmt.Sprintf("%d of %d", w.random.IntN(keys), now()/int64(epoch)))
	add := func(r Record) { r.ID, r.Key = w.id, key; w.log.add(r) }
	add(Record{Kind: Try, Call: now()})
	hold, err := w.locks.Obtain(key).TryLockFor(ctx, time.Duration(w.random.IntN(30))*time.Millisecond)
	back := now()
	if err != nil {
		add(Record{Kind: Nothing, Return: back})
		if errors.Is(err, registry.ErrUnavailable) {
			time.Sleep(5 * time.Millisecond)
		}
		return
	}
	add(Record{Kind: Grant, Token: hold.Token(), Return: back})
	if w.random.IntN(8) == 0 {
		w.write(ctx, key, hold.Token())
	}
	// Some hold on until they are told that they have lost it.
	for until := time.Now().Add(time.Duration(w.random.IntN(4)) * time.Millisecond); time.Now().Before(until); time.Sleep(time.Millisecond) {
		at := now()
		if !hold.Held() {
			add(Record{Kind: Lost, Return: now()})
			hold.Unlock(ctx)
			return
		}
		add(Record{Kind: Held, Call: at})
	}
	at := now()
	if !hold.Held() {
		add(Record{Kind: Lost, Return: now()})
		hold.Unlock(ctx)
		return
	}
	add(Record{Kind: Unlock, Call: at})
	end := Free
	if err := hold.Unlock(ctx); err != nil {
		end = Lost
	}
	add(Record{Kind: end, Return: now()})
}

// write adds to what the guard fences. That the guard refuses it is no fault, and it is
// asked also when the lock is lost.
func (w *worker) write(ctx context.Context, key string, token int64) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return
	}
	defer tx.Rollback()
	if err := w.guard.Check(ctx, tx, key, token); err != nil {
		return
	}
	text := fmt.Sprintf("INSERT INTO WRITES (RESOURCE, N, TOKEN) SELECT '%s', COALESCE(MAX(N), 0) + 1, %d FROM WRITES WHERE RESOURCE = '%s'", key, token, key)
	if _, err := tx.ExecContext(ctx, text); err == nil {
		tx.Commit()
	}
}
