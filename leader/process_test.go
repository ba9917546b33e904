package leader_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/intlock/intlock/internal/testdb"
	"github.com/intlock/intlock/schema"
)

func schemaApply(t *testing.T, db *testdb.DB) error { return schema.Apply(t.Context(), db, "INT_") }

// leaderAmong waits until one of the processes says that it leads, and returns its
// place and token.
func leaderAmong(t *testing.T, processes []*testdb.Process, lines []<-chan string) (at int, token int64) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		for i, c := range lines {
			select {
			case line, ok := <-c:
				if !ok {
					t.Fatalf("process %d has ended", i)
				}
				if text, ok := strings.CutPrefix(line, "granted "); ok {
					token, err := strconv.ParseInt(text, 10, 64)
					must(t, err)
					return i, token
				}
				if !strings.HasPrefix(line, "revoked") && line != "ready" {
					t.Fatalf("process %d says %q", i, line)
				}
			default:
			}
		}
		select {
		case <-deadline:
			t.Fatal("nobody leads")
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// checkLog: the lines were written in the order of the tokens, so never by a leader
// whose successor had written.
func checkLog(t *testing.T, db *testdb.DB) {
	t.Helper()
	rows, err := db.Query("SELECT TOKEN FROM LEADERS ORDER BY N")
	must(t, err)
	defer rows.Close()
	var tokens []int64
	for rows.Next() {
		var token int64
		must(t, rows.Scan(&token))
		tokens = append(tokens, token)
	}
	must(t, rows.Err())
	if !slices.IsSorted(tokens) || len(tokens) == 0 {
		t.Errorf("%d lines, not in the order of the tokens", len(tokens))
	}
}

// The leader of three processes is killed, again and again.
func TestKill(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		const ttl, kills = time.Second, 20
		_, err := db.Exec("CREATE TABLE LEADERS (N INTEGER PRIMARY KEY, TOKEN BIGINT NOT NULL)")
		must(t, err)
		processes, lines := make([]*testdb.Process, 3), make([]<-chan string, 3)
		for i := range processes {
			processes[i] = spawn(t, db, strconv.Itoa(i), ttl, "")
			lines[i] = processes[i].Lines()
		}
		at, last := leaderAmong(t, processes, lines)
		var took []time.Duration
		for range kills {
			time.Sleep(20 * time.Millisecond)
			begin := time.Now()
			processes[at].Kill()
			dead := at
			lines[dead] = nil
			var token int64
			at, token = leaderAmong(t, processes, lines)
			took = append(took, time.Since(begin))
			if token <= last {
				t.Errorf("token %d after %d", token, last)
			}
			last = token
			processes[dead] = spawn(t, db, strconv.Itoa(dead), ttl, "")
			lines[dead] = processes[dead].Lines()
		}
		slices.Sort(took)
		t.Logf("from kill -9 to the next leader, TTL %v: median %v, longest %v", ttl, took[kills/2], took[kills-1])
		if took[kills-1] > ttl+3*time.Second {
			t.Errorf("longest %v", took[kills-1])
		}
		checkLog(t, db)
	})
}

// A leader that is stopped for longer than its lease: when it goes on, its context
// is over, and what it still tries is refused.
func TestPause(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.DB) {
		const ttl = time.Second
		_, err := db.Exec("CREATE TABLE LEADERS (N INTEGER PRIMARY KEY, TOKEN BIGINT NOT NULL)")
		must(t, err)
		processes, lines := make([]*testdb.Process, 2), make([]<-chan string, 2)
		for i := range processes {
			processes[i] = spawn(t, db, strconv.Itoa(i), ttl, "calm")
			lines[i] = processes[i].Lines()
		}
		at, last := leaderAmong(t, processes, lines)
		for range 2 {
			paused := at
			processes[paused].Stop(t)
			var token int64
			at, token = leaderAmong(t, processes, lines)
			if token <= last {
				t.Errorf("token %d after %d", token, last)
			}
			last = token
			processes[paused].Cont(t)
			select {
			case line := <-lines[paused]:
				if !strings.HasPrefix(line, "late: fencing: stale token") {
					t.Errorf("it says %q", line)
				}
			case <-time.After(10 * time.Second):
				t.Error("it does not notice")
			}
			for len(lines[paused]) > 0 {
				<-lines[paused]
			}
		}
		checkLog(t, db)
	})
}
