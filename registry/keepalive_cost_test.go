package registry_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/registry/registrytest"
	"github.com/intlock/intlock/repository"
)

// What keeping 10,000 leases of 30 s may cost, measured in
// BenchmarkKeepAlive; the processor's share there alone.
const (
	costLeases = 10_000
	costTTL    = 30 * time.Second

	maxCorePercent = 5.0
	maxStatements  = 100.0 // a second
	maxLeaseBytes  = 3000.0
)

// heapInUse is what is reachable.
func heapInUse() float64 {
	var mem runtime.MemStats
	runtime.GC()
	runtime.GC() // sync.Pools
	runtime.ReadMemStats(&mem)
	return float64(mem.HeapAlloc)
}

// TestKeepAliveCost is what BenchmarkKeepAlive shows and does not depend on the
// machine: statements in virtual time, and memory, here with the row of the
// memory repository.
func TestKeepAliveCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := repository.NewMemory(nil)
		if err != nil {
			t.Fatal(err)
		}
		repo := &registrytest.Around{LockRepository: memory}
		var renewals atomic.Int64
		repo.Set(func(_ context.Context, op string, do func() error) error {
			time.Sleep(time.Millisecond)
			if op == "renew" {
				renewals.Add(1)
				time.Sleep(2 * time.Millisecond)
			}
			return do()
		})
		holds := make([]*registry.Hold, costLeases)
		before := heapInUse()
		locks, err := registry.New(repo, registry.WithTTL(costTTL), registry.WithOnLost(func(*registry.LostError) {}))
		if err != nil {
			t.Fatal(err)
		}
		for i := range holds {
			if holds[i], err = locks.Obtain(fmt.Sprint("order-", i)).LockContext(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(costTTL)
		renewals.Store(0)
		const window = 2 * time.Minute
		time.Sleep(window)
		perSecond := float64(renewals.Load()) / window.Seconds()
		perLease := (heapInUse() - before) / costLeases
		t.Logf("%.1f statements a second, %.0f B a lease", perSecond, perLease)
		if perSecond > maxStatements/5 {
			t.Errorf("%.1f statements a second, want about 5", perSecond)
		}
		if perLease > maxLeaseBytes {
			t.Errorf("%.0f B a lease, want at most %v", perLease, maxLeaseBytes)
		}
		for _, h := range holds {
			if !h.Held() {
				t.Fatalf("%s was lost", h.Key())
			}
		}
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
		runtime.KeepAlive(repo)
	})
}
