package registry_test

import (
	"context"
	"fmt"
	"testing"

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
		for b.Loop() {
			l := locks.Obtain("group-42")
			l.Lock()
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
			l.Unlock()
			i++
		}
	})
}

func BenchmarkNewAttempt(b *testing.B) {
	for b.Loop() {
		repository.NewAttempt()
	}
}
