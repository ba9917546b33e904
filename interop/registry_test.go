package interop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
)

var quiet = slog.New(slog.DiscardHandler)

// side is a Go process on the table.
func side(t *testing.T, db *testdb.DB, opts ...registry.Option) *registry.JdbcLockRegistry {
	t.Helper()
	repo, err := repository.New(t.Context(), db)
	must(t, err)
	locks, err := registry.New(repo, append([]registry.Option{registry.WithLogger(quiet)}, opts...)...)
	must(t, err)
	t.Cleanup(func() { locks.Close(context.Background()) })
	return locks
}

func apply(t *testing.T, db *testdb.DB) {
	t.Helper()
	must(t, schema.Apply(t.Context(), db, "INT_"))
}

func lock(t *testing.T, locks *registry.JdbcLockRegistry, key string, opts ...registry.LockOption) *registry.Hold {
	t.Helper()
	hold, err := locks.Obtain(key).TryLockFor(t.Context(), 20*time.Second, opts...)
	must(t, err)
	return hold
}

func refused(t *testing.T, locks *registry.JdbcLockRegistry, key string) *registry.NotAcquiredError {
	t.Helper()
	hold, err := locks.Obtain(key).TryLockFor(t.Context(), 50*time.Millisecond)
	if err == nil {
		hold.Unlock(t.Context())
		t.Fatalf("Go had %q", key)
	}
	var held *registry.NotAcquiredError
	if !errors.As(err, &held) || errors.Is(err, registry.ErrUnavailable) {
		t.Fatalf("err = %v, want it held", err)
	}
	return held
}

// Keys of every kind are the same row for both.
func TestKeys(t *testing.T) {
	db := testdb.Open(t, "postgres")
	apply(t, db)
	j := start(t, db, newest)
	random := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("abcXYZ 0189-_./:\\\"'%$\t\nñüßéΩжहअ中日本한🔒🧵\u200d\u0301\u00a0\ufeff")
	keys := []string{"", " ", "group-42", "ACBD18DB-4CC2-385C-ADEF-654FCCC4A4D8", "acbd18db-4cc2-385c-adef-654fccc4a4d8",
		"1-1-1-1-1", "{acbd18db-4cc2-385c-adef-654fccc4a4d8}", "acbd18db4cc2385cadef654fccc4a4d8", strings.Repeat("x", 5000)}
	for len(keys) < 1000 {
		key := make([]rune, random.IntN(40))
		for i := range key {
			key[i] = alphabet[random.IntN(len(alphabet))]
		}
		keys = append(keys, string(key))
		if len(keys)%10 == 0 {
			u := fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", random.Uint32(), random.Uint32()&0xffff, random.Uint32()&0xffff, random.Uint32()&0xffff, random.Uint64()&0xffffffffffff)
			if random.IntN(2) == 0 {
				u = strings.ToUpper(u)
			}
			keys = append(keys, u)
		}
	}
	different := 0
	for _, key := range keys {
		if key == "" { // Java's driver would read no word
			continue
		}
		if want, got := j.do("path", hexed(key)), registry.PathFor(key); got != want {
			different++
			if different < 5 {
				t.Errorf("%q is %s here and %s in Java", key, got, want)
			}
		}
	}
	t.Logf("%d keys, %d differ", len(keys), different)
}

// Who holds a key is told to the other side, expiry and take-over are seen by both,
// and who lost a lock hears of it.
func TestOneRow(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		apply(t, db)
		for _, version := range []string{newest, before} {
			t.Run(version, func(t *testing.T) {
				j, g := start(t, db, version, "TTL_MS=2000", "IDLE_MS=20"), side(t, db)

				j.locks("a") // Java holds
				held := refused(t, g, "a")
				if held.ClientID == "" || held.Remaining <= 0 || held.Remaining > 2*time.Second {
					t.Errorf("told of %+v", held)
				}
				j.do("unlock", hexed("a"))
				hold := lock(t, g, "a") // Go holds
				j.refused("a")
				must(t, hold.Unlock(t.Context()))
				j.locks("a")
				j.do("unlock", hexed("a"))

				j.locks("b") // Java's lease ends, Go takes over, Java is told
				hold = lock(t, g, "b", registry.WithTTL(20*time.Second))
				if _, err := j.try("unlock", hexed("b")); err == nil || !strings.Contains(err.Error(), "ConcurrentModification") {
					t.Errorf("java's unlock: %v, want it told", err)
				}
				if !hold.Held() {
					t.Error("Go's lease is gone")
				}
				must(t, hold.Unlock(t.Context()))

				hold = lock(t, g, "c", registry.WithTTL(300*time.Millisecond)) // the reverse
				j.locks("c")
				if err := hold.Unlock(t.Context()); !errors.Is(err, registry.ErrLockLost) {
					t.Errorf("Go's unlock: %v, want ErrLockLost", err)
				}
				refused(t, g, "c")
				j.do("unlock", hexed("c"))

				hold = lock(t, g, "d", registry.WithTTL(time.Second), registry.WithRenewal(true)) // Go renews
				for range 8 {
					j.refused("d")
					time.Sleep(200 * time.Millisecond)
				}
				must(t, hold.Unlock(t.Context()))
				j.locks("d") // Java renews
				for range 5 {
					time.Sleep(700 * time.Millisecond)
					j.do("renew", hexed("d"))
					refused(t, g, "d")
				}
				j.do("unlock", hexed("d"))

				mine := lock(t, g, "mine") // both clean up what is theirs alone
				j.locks("theirs")
				j.do("close")
				if !mine.Held() {
					t.Error("Java's close took Go's lock")
				}
				must(t, mine.Renew(t.Context()))
				must(t, mine.Unlock(t.Context()))
				must(t, lock(t, g, "theirs").Unlock(t.Context()))
			})
		}
	})
}

// counting adds to an unprotected counter under its lock until the time is up.
func counting(ctx context.Context, db *testdb.DB, locks *registry.JdbcLockRegistry, key, table string, until time.Time) (grants int, err error) {
	for time.Now().Before(until) {
		hold, err := locks.Obtain(key).TryLockFor(ctx, 200*time.Millisecond)
		if errors.Is(err, registry.ErrNotAcquired) || errors.Is(err, registry.ErrUnavailable) {
			continue
		}
		if err != nil {
			return grants, err
		}
		var n int
		if err := db.QueryRowContext(ctx, "SELECT N FROM "+table+" WHERE ID = 1").Scan(&n); err != nil {
			return grants, err
		}
		time.Sleep(time.Millisecond)
		if _, err := db.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET N = %d WHERE ID = 1", table, n+1)); err != nil {
			return grants, err
		}
		grants++
		if err := hold.Unlock(ctx); err != nil {
			return grants, err
		}
	}
	return grants, nil
}

// count has Java and Go processes add to one counter, and checks the sum.
func count(t *testing.T, db *testdb.DB, javas []*java, gos []*registry.JdbcLockRegistry, seconds int) (byJava, byGo int) {
	t.Helper()
	_, err := db.Exec("CREATE TABLE COUNTED (ID INTEGER PRIMARY KEY, N INTEGER NOT NULL)")
	must(t, err)
	_, err = db.Exec("INSERT INTO COUNTED VALUES (1, 0)")
	must(t, err)
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	for _, j := range javas {
		j.send("count", hexed("counter"), "COUNTED", 1, seconds*1000)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, g := range gos {
		wg.Go(func() {
			n, err := counting(t.Context(), db, g, "counter", "COUNTED", until)
			mu.Lock()
			defer mu.Unlock()
			byGo += n
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, j := range javas {
		text, err := j.answer()
		must(t, err)
		n, err := strconv.Atoi(text)
		must(t, err)
		byJava += n
	}
	var n int
	must(t, db.QueryRow("SELECT N FROM COUNTED WHERE ID = 1").Scan(&n))
	if n != byJava+byGo {
		t.Errorf("the counter is %d after %d grants", n, byJava+byGo)
	}
	t.Logf("grants: %d to Java, %d to Go", byJava, byGo)
	return byJava, byGo
}

// Four Java and four Go processes share a lock: exact, and each side gets its part.
func TestCounter(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		apply(t, db)
		var javas []*java
		var gos []*registry.JdbcLockRegistry
		for range 4 {
			javas = append(javas, start(t, db, newest))
			gos = append(gos, side(t, db, registry.WithAdaptivePolling(false))) // or Go would nearly always be first
		}
		byJava, byGo := count(t, db, javas, gos, 10)
		if all := byJava + byGo; byJava*10 < all || byGo*10 < all {
			t.Errorf("of %d grants Java had %d and Go %d: want a tenth at least for each", all, byJava, byGo)
		}
	})
}

// Tables that Spring's own scripts make, and Spring on a table that ours makes.
func TestSchemas(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		_, err := db.Exec(springScript(t, newest, db.Vendor))
		must(t, err)
		// Ours needs three columns more, which Spring does not see; the start check
		// says which, and what it says to run makes the table good.
		_, err = repository.New(t.Context(), db)
		if !errors.Is(err, repository.ErrTable) {
			t.Fatalf("err = %v, want ErrTable", err)
		}
		mend(t, db, err)
		j, g := start(t, db, newest), side(t, db)
		j.locks("a")
		refused(t, g, "a")
		j.do("unlock", hexed("a"))
		hold := lock(t, g, "b")
		j.refused("b")
		must(t, hold.Unlock(t.Context()))
		j.do("close")

		ours := testdb.Open(t, db.Vendor)
		apply(t, ours)
		start(t, ours, newest).do("close") // its start check has run
	})
}

// mend runs the ALTER TABLE statements of a start check's error.
func mend(t *testing.T, db *testdb.DB, err error) {
	t.Helper()
	found := false
	for line := range strings.SplitSeq(err.Error(), "\n") {
		for part := range strings.SplitSeq(line, ";") {
			if at := strings.Index(part, "ALTER TABLE"); at >= 0 {
				found = true
				if _, err := db.Exec(part[at:]); err != nil {
					t.Fatalf("%s: %v", part[at:], err)
				}
			}
		}
	}
	if !found {
		t.Fatalf("the start check proposes nothing: %v", err)
	}
}

// The layout of Spring 6.5 and older, with the older Spring.
func TestSpring6(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		_, err := db.Exec(springScript(t, spring6, db.Vendor))
		must(t, err)
		const ttl = 2 * time.Second
		layout := repository.WithSpring6Layout(ttl)
		_, err = repository.New(t.Context(), db, layout)
		mend(t, db, err)
		// The other layout is refused with words.
		if _, err := repository.New(t.Context(), db); !errors.Is(err, repository.ErrTable) || !strings.Contains(err.Error(), "EXPIRED_AFTER") {
			t.Errorf("the new layout on the old table: %v", err)
		}
		repo, err := repository.New(t.Context(), db, layout)
		must(t, err)
		g, err := registry.New(repo, registry.WithTTL(ttl), registry.WithLogger(quiet))
		must(t, err)
		defer g.Close(context.Background())
		j := start(t, db, spring6, "TTL_MS=2000", "IDLE_MS=20")
		j.locks("a")
		refused(t, g, "a")
		j.do("unlock", hexed("a"))
		hold := lock(t, g, "a")
		for range 5 { // renewed
			j.refused("a")
			time.Sleep(600 * time.Millisecond)
		}
		must(t, hold.Unlock(t.Context()))
		j.locks("b") // and taken over
		must(t, lock(t, g, "b").Unlock(t.Context()))
		byJava, byGo := count(t, db, []*java{j}, []*registry.JdbcLockRegistry{g}, 3)
		if byJava == 0 || byGo == 0 {
			t.Errorf("grants: %d to Java, %d to Go", byJava, byGo)
		}
	})
}
