package registry_test

import (
	"fmt"
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

func TestDatabases(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.DB) {
		t.Parallel() // the suite mostly waits
		if err := schema.Apply(t.Context(), db, "INT_"); err != nil {
			t.Fatal(err)
		}
		mark := db.LogMark(t)
		var n atomic.Int64
		registrytest.Run(t, func(t *testing.T) registrytest.Backend { return backend(db, fmt.Sprint("clause-", n.Add(1))) })
		silent(t, db, mark, 5)
	})
}

// backend gives each clause a region of its own in one table.
func backend(db *testdb.DB, region string) registrytest.Backend {
	return registrytest.Backend{
		Open: func(t *testing.T, clientID string) repository.LockRepository {
			repo, err := repository.New(t.Context(), db.DB, repository.WithRegion(region), repository.WithClientID(clientID))
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
