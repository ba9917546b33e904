package middleware_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/middleware"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

func TestMain(m *testing.M) { testdb.Main(m, nil) }

var quiet = slog.New(slog.DiscardHandler)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// each runs f on every database.
func each(t *testing.T, f func(t *testing.T, db *testdb.DB)) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel()
		must(t, schema.Apply(t.Context(), db, "INT_"))
		f(t, db)
	})
}

func locksOn(t *testing.T, db *testdb.DB, opts ...registry.Option) *registry.JdbcLockRegistry {
	t.Helper()
	repo, err := repository.New(t.Context(), db, repository.WithHolder("host-of-another"))
	must(t, err)
	locks, err := registry.New(repo, append([]registry.Option{registry.WithLogger(quiet)}, opts...)...)
	must(t, err)
	t.Cleanup(func() { locks.Close(context.Background()) })
	return locks
}

// guard is that of another instance.
func guard(t *testing.T, db *testdb.DB, operation string, opts ...middleware.Option) *middleware.Guard {
	t.Helper()
	g, err := middleware.New(locksOn(t, db), operation, append([]middleware.Option{middleware.WithLogger(quiet)}, opts...)...)
	must(t, err)
	return g
}

// try makes a request that does nothing, and again what a busy database refuses.
func try(t *testing.T, g *middleware.Guard, key string) error {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		_, err := middleware.Do(t.Context(), g, key, func(context.Context) (int, error) { return 1, nil })
		if isUnavailable(err) && time.Since(begin) < 10*time.Second {
			continue
		}
		return err
	}
}
