package check

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/schema"
)

var (
	duration = flag.Duration("duration", 20*time.Second, "how long the workers run on each database, on MySQL twice as long")
	least    = flag.Int("operations", 20_000, "how many operations there must be on each database")
	seedFlag = flag.Uint64("seed", 0, "decides keys, times and faults; each run prints its own (0: another each time)")
)

func TestMain(m *testing.M) { testdb.Main(m, map[string]func(){"worker": workerChild}) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// scene is a database and the workers on it.
type scene struct {
	t         *testing.T
	db        *testdb.DB // as the checks see it
	used      *testdb.DB // as the workers see it
	proxy     *testdb.Proxy
	server    *testdb.PrivateServer
	random    *rand.Rand
	seed      uint64
	processes []*testdb.Process
	logs      []string
	done      map[string]int // faults
}

// newScene makes the tables and starts the workers.
func newScene(t *testing.T, vendor string, seed uint64) *scene {
	s := &scene{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), done: map[string]int{}}
	if vendor == "sqlite" {
		s.db = testdb.Open(t, vendor)
		s.used = s.db
	} else {
		s.server = testdb.Private(t, vendor)
		s.db = s.server.Open(t)
		s.proxy = s.db.Proxy(t)
		s.used = s.db.Through(t, s.proxy)
	}
	must(t, prepare(t.Context(), s.db.DB, vendor))
	s.processes = make([]*testdb.Process, 4)
	for at := range s.processes {
		s.start(at, 2+s.random.IntN(6))
	}
	return s
}

// prepare makes the tables.
func prepare(ctx context.Context, db *sql.DB, vendor string) error {
	if err := schema.Apply(ctx, db, "INT_"); err != nil {
		return err
	}
	texts := append(AuditScript(vendor), "CREATE TABLE WRITES (RESOURCE VARCHAR(50) NOT NULL, N INTEGER NOT NULL, TOKEN BIGINT NOT NULL, PRIMARY KEY (RESOURCE, N))")
	for _, text := range texts {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// start starts a worker in a place, with a pool of so many connections. Each has a log
// of its own.
func (s *scene) start(at, pool int) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), fmt.Sprint("log-", len(s.logs)))
	s.logs = append(s.logs, file)
	s.processes[at] = testdb.Spawn(s.t, "worker", map[string]string{
		"CHECK_DRIVER": s.used.Driver, "CHECK_DSN": s.used.DSN, "CHECK_LOG": file, "CHECK_POOL": fmt.Sprint(pool),
		"CHECK_SEED": fmt.Sprint((s.seed + uint64(len(s.logs))) & (1<<40 - 1)), "CHECK_GOROUTINES": "6", "CHECK_KEYS": "12",
	})
}

// any is one of the workers.
func (s *scene) any() (at int, p *testdb.Process) {
	at = s.random.IntN(len(s.processes))
	return at, s.processes[at]
}

// pause sleeps for some time below most.
func (s *scene) pause(most time.Duration) {
	time.Sleep(time.Duration(s.random.Int64N(int64(most))))
}

// history ends the workers and reads what they have done.
func (s *scene) history() (h *History, given map[string][]LeaseID, writes map[string][]int64, n int) {
	t := s.t
	for _, p := range s.processes {
		p.Kill()
	}
	h = new(History)
	for _, file := range s.logs {
		if err := h.Read(file); !errors.Is(err, fs.ErrNotExist) { // killed before it began
			must(t, err)
		}
	}
	if AuditScript(s.db.Vendor) == nil {
		given = h.Confirmed()
	} else {
		var err error
		given, err = Audit(t.Context(), s.db.DB)
		must(t, err)
	}
	rows, err := s.db.Query("SELECT RESOURCE, TOKEN FROM WRITES ORDER BY RESOURCE, N")
	must(t, err)
	defer rows.Close()
	writes = map[string][]int64{}
	for rows.Next() {
		var resource string
		var token int64
		must(t, rows.Scan(&resource, &token))
		writes[resource] = append(writes[resource], token)
		n++
	}
	must(t, rows.Err())
	return h, given, writes, n
}
