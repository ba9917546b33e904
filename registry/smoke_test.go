package registry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, _ := repository.NewMemory(nil)
		r, err := registry.New(repo)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close(context.Background())
		l := r.Obtain("foo")
		l.Lock()
		if l.TryLock() {
			t.Fatal("twice")
		}
		l.Unlock()
		h, err := l.LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx := h.Context(t.Context())
		time.Sleep(11 * time.Second)
		t.Log(ctx.Err(), context.Cause(ctx), h.Held())
		t.Log(h.Unlock(t.Context()))
	})
}
