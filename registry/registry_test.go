package registry_test

import (
	"flag"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/internal/vendor"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/registry/registrytest"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
	"github.com/intlock/intlock/wakeup/pglisten"
	"github.com/intlock/intlock/wakeup/sqlitewatch"
)

func TestMemory(t *testing.T) {
	for _, tokens := range []bool{false, true} {
		for _, batching := range []bool{true, false} {
			for _, handOver := range []bool{true, false} {
				t.Run(fmt.Sprintf("tokens=%v,batching=%v,handOver=%v", tokens, batching, handOver), func(t *testing.T) {
					registrytest.Run(t, func(t *testing.T) registrytest.Backend { return memory(tokens, batching, handOver) })
				})
			}
		}
	}
}

func memory(tokens, batching, handOver bool) registrytest.Backend {
	var table repository.MemoryTable
	return registrytest.Backend{
		Open: func(t *testing.T, clientID string) repository.LockRepository {
			opts := []repository.Option{repository.WithClientID(clientID)}
			if tokens {
				opts = append(opts, repository.WithTokens())
			}
			repo, err := repository.NewMemory(&table, opts...)
			if err != nil {
				t.Fatal(err)
			}
			return repo
		},
		Options: func(*testing.T) []registry.Option {
			return []registry.Option{registry.WithBatching(batching), registry.WithLocalHandOver(handOver)}
		},
		Expire: func(t *testing.T, key string) { table.Expire(key) },
		Bubble: synctest.Test,
	}
}

// all has TestDatabases run every combination on every database. Without it each
// runs one: on MariaDB with everything off, on the others with everything on.
var all = flag.Bool("all", false, "run the suite with all combinations")

// TestDatabases runs the suite with combinations of what makes locks fast, with
// and without tokens in turn. In memory, where time costs nothing, all are run.
func TestDatabases(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel() // the suite mostly waits
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		mark := db.LogMark(t)
		t.Run("with", func(t *testing.T) {
			for i := range 8 {
				s := setting{batching: i&1 == 0, handOver: i&2 == 0, wakeUp: i&4 != 0, tokens: i%4 != 3}
				none := s.newWakeUp(t, db) == nil
				if s.wakeUp && none {
					continue
				}
				if on := db.Vendor != vendor.MariaDB; !*all && (s.batching != on || s.handOver != on || s.wakeUp == none) {
					continue
				}
				t.Run(s.String(), func(t *testing.T) {
					var n atomic.Int64
					registrytest.Run(t, func(t *testing.T) registrytest.Backend {
						return s.backend(db, fmt.Sprintf("clause-%d-%d", i, n.Add(1)))
					})
				})
			}
		})
		silent(t, db, mark, 5)
	})
}

// setting is one combination.
type setting struct{ batching, handOver, wakeUp, tokens bool }

func (s setting) String() string {
	return fmt.Sprintf("batching=%v,handOver=%v,wakeUp=%v,tokens=%v", s.batching, s.handOver, s.wakeUp, s.tokens)
}

// newWakeUp returns the wake-up that the vendor has, nil if none.
func (s setting) newWakeUp(t *testing.T, db *testdb.DB) registry.WakeUp {
	switch db.Vendor {
	case vendor.Postgres:
		w, err := pglisten.New(db.DSN, pglisten.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		return w
	case vendor.SQLite:
		return sqlitewatch.New(db.Again(t).DB)
	}
	return nil
}

func (s setting) backend(db *testdb.DB, region string) registrytest.Backend {
	var opts []repository.Option
	if s.tokens {
		opts = append(opts, repository.WithTokens())
	}
	if s.wakeUp {
		opts = append(opts, repository.WithNotify(), repository.WithAsyncRelease())
	}
	b := backend(db, region, opts...)
	b.Options = func(t *testing.T) []registry.Option {
		all := []registry.Option{registry.WithBatching(s.batching), registry.WithLocalHandOver(s.handOver)}
		if s.wakeUp {
			all = append(all, registry.WithWakeUp(s.newWakeUp(t, db)))
		}
		return all
	}
	return b
}

// backend gives each clause a region of its own in one table.
func backend(db *testdb.DB, region string, opts ...repository.Option) registrytest.Backend {
	return registrytest.Backend{
		Open: func(t *testing.T, clientID string) repository.LockRepository {
			opts := append([]repository.Option{repository.WithRegion(region), repository.WithClientID(clientID)}, opts...)
			repo, err := repository.New(t.Context(), db.DB, opts...)
			if err != nil {
				t.Fatal(err)
			}
			return repo
		},
		Expire: func(t *testing.T, key string) {
			past := map[string]string{
				vendor.Postgres: "TIMESTAMP '2001-01-01'", vendor.SQLite: "978307200000",
				vendor.MySQL: "'2001-01-01'", vendor.MariaDB: "'2001-01-01'",
			}[db.Vendor]
			query := fmt.Sprintf("UPDATE INT_LOCK SET EXPIRED_AFTER = %s WHERE REGION = '%s' AND LOCK_KEY = '%s'", past, region, key)
			if _, err := db.Exec(query); err != nil {
				t.Fatal(err)
			}
		},
	}
}
