package registry_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// BenchmarkMemory is what the registry itself costs: no database, no contention.
func BenchmarkMemory(b *testing.B) {
	repo, err := repository.NewMemory(nil)
	if err != nil {
		b.Fatal(err)
	}
	locks, err := registry.New(repo)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { locks.Close(context.Background()) })
	b.Run("Locker", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			l := locks.Obtain("group-42")
			l.Lock()
			n++
			l.Unlock()
		}
	})
	b.Run("LockContext", func(b *testing.B) {
		b.ReportAllocs()
		ctx := context.Background()
		for b.Loop() {
			hold, err := locks.Obtain("group-42").LockContext(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := hold.Unlock(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("OtherKeys", func(b *testing.B) {
		b.ReportAllocs()
		keys := make([]string, 1000)
		for i := range keys {
			keys[i] = fmt.Sprint("group-", i)
		}
		i := 0
		for b.Loop() {
			l := locks.Obtain(keys[i%len(keys)])
			l.Lock()
			i++
			l.Unlock()
		}
	})
}

func BenchmarkNewAttempt(b *testing.B) {
	for b.Loop() {
		repository.NewAttempt()
	}
}

// slowStore is the memory model behind a wire: every statement takes as long as
// a commit, and takes one request or many.
type slowStore struct {
	repository.LockRepository
	statements atomic.Int64
}

func (s *slowStore) trip() {
	s.statements.Add(1)
	time.Sleep(200 * time.Microsecond)
}

func (s *slowStore) Acquire(ctx context.Context, req repository.Request) (repository.Outcome, error) {
	s.trip()
	return s.LockRepository.Acquire(ctx, req)
}

func (s *slowStore) Delete(ctx context.Context, lease repository.Lease) (bool, error) {
	s.trip()
	return s.LockRepository.Delete(ctx, lease)
}

func (s *slowStore) AcquireBatch(ctx context.Context, reqs []repository.Request) ([]repository.Answer[repository.Outcome], error) {
	s.trip()
	answers := make([]repository.Answer[repository.Outcome], len(reqs))
	for i, req := range reqs {
		answers[i].Value, answers[i].Err = s.LockRepository.Acquire(ctx, req)
	}
	return answers, nil
}

func (s *slowStore) DeleteBatch(ctx context.Context, leases []repository.Lease) ([]repository.Answer[bool], error) {
	s.trip()
	answers := make([]repository.Answer[bool], len(leases))
	for i, lease := range leases {
		answers[i].Value, answers[i].Err = s.LockRepository.Delete(ctx, lease)
	}
	return answers, nil
}

// BenchmarkLanes is what a lock costs the process when many goroutines share
// statements: the time is that of one lock and unlock of all goroutines together.
func BenchmarkLanes(b *testing.B) {
	for _, goroutines := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			repo, err := repository.NewMemory(nil)
			if err != nil {
				b.Fatal(err)
			}
			store := &slowStore{LockRepository: repo}
			locks, err := registry.New(store)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { locks.Close(context.Background()) })
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			for i := range goroutines {
				key := fmt.Sprint("key-", i)
				all.Go(func() {
					for left.Add(-1) >= 0 {
						hold, err := locks.Obtain(key).LockContext(context.Background())
						if err != nil {
							b.Error(err)
							return
						}
						hold.Unlock(context.Background())
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(store.statements.Load())/float64(b.N), "statements/op")
		})
	}
}
